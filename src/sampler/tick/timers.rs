//! The second sampling engine: each running thread has its own timer, which interrupts it.
//!
//! Which of the two engines costs a sampled thread less depends on the machine. A signal from
//! another processor costs an inter-processor interrupt. A timer costs a timer interrupt, and a
//! little on each switch to or from its thread. A trial measures both.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::capture::SlotHandle;
use crate::platform::{
    SignalTicket, ThreadTimer, current_process_id, current_thread_id, is_sandboxed, monotonic_now,
    send_request, sleep_until, with_signal_unblocked,
};
use crate::sampler::handler::TRIAL_TIMER;
use crate::state::{EngineTrial, Session, SessionCounts};
use crate::types::{ThreadId, TimeStamp};

/// The timer of a thread, made on first use.
#[derive(Debug, Default)]
pub(crate) enum TimerState {
    #[default]
    NotYet,
    Runs {
        #[expect(dead_code, reason = "it runs as long as it is kept")]
        timer: ThreadTimer,
    },
    /// The system refused to create one.
    Refused,
}

impl TimerState {
    /// Makes the timer on the first call. Returns false if the system refuses.
    pub(crate) fn ensure(
        &mut self,
        thread: ThreadId,
        slot: &SlotHandle,
        session: &Session,
    ) -> bool {
        if matches!(self, Self::NotYet) {
            let settings = &session.settings;
            let interval_ns = settings.interval.as_nanos() as u64;
            let note = |number| slot.set_timer(number);
            *self = match ThreadTimer::start(thread, interval_ns, settings.signal, note) {
                Ok(timer) => Self::Runs { timer },
                Err(_) => {
                    SessionCounts::add(&session.counts.refused_timers, 1);
                    Self::Refused
                }
            };
        }
        matches!(self, Self::Runs { .. })
    }

    /// Ends the timer. The slot keeps the timer's number until the next session, so that a signal
    /// already on its way is still recognised.
    pub(crate) fn end(&mut self) {
        if matches!(self, Self::Runs { .. }) {
            *self = Self::NotYet;
        }
    }
}

/// State of the trial. A process makes one trial, because its machine does not change. The state is
/// an atomic rather than a lock, because a fork could leave a lock held.
static TRIAL: AtomicU8 = AtomicU8::new(UNTRIED);
const UNTRIED: u8 = 0;
const RUNNING: u8 = 1;
const DONE: u8 = 2;
/// Maximum wait for a trial of an earlier session. In the child of a fork, a trial of the parent
/// would never end.
const MAX_TRIAL: Duration = Duration::from_secs(1);
/// Results of the trial, in ns; 0 until a trial has ended, and for an engine that it could not
/// measure.
static SIGNAL_NS: AtomicU64 = AtomicU64::new(0);
static TIMER_NS: AtomicU64 = AtomicU64::new(0);

/// Number of interruptions by each engine.
const INTERRUPTIONS: u32 = 12;
/// Time between two interruptions of the trial, in ns.
const INTERVAL_NS: u64 = 150_000;
/// Shortest gap that counts as an interruption, in ns.
const MIN_INTERRUPTION_NS: u64 = 800;

/// Returns the time that one interruption by each engine takes from a running thread on this
/// machine. The first call takes 4 ms, during which a thread spins; later calls return the stored
/// result. Returns `None` if the time cannot be measured, for example on a single processor.
pub(crate) fn try_engines(session: &Session) -> Option<EngineTrial> {
    let end = Instant::now() + MAX_TRIAL;
    while TRIAL.load(Ordering::Acquire) == RUNNING && !session.is_stopping() && Instant::now() < end
    {
        std::thread::sleep(Duration::from_millis(1));
    }
    if TRIAL
        .compare_exchange(UNTRIED, RUNNING, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
    {
        let trial = run_trial(session);
        if let Some(trial) = trial {
            TIMER_NS.store(trial.timer_ns.unwrap_or(0), Ordering::Relaxed);
            SIGNAL_NS.store(trial.signal_ns, Ordering::Release);
        }
        // The next session repeats a trial that was cut short.
        let was_cut = trial.is_none() && session.is_stopping();
        TRIAL.store(if was_cut { UNTRIED } else { DONE }, Ordering::Release);
    }
    let found = |ns: &AtomicU64| Some(ns.load(Ordering::Acquire)).filter(|&ns| ns > 0);
    Some(EngineTrial {
        signal_ns: found(&SIGNAL_NS)?,
        timer_ns: found(&TIMER_NS),
    })
}

fn run_trial(session: &Session) -> Option<EngineTrial> {
    let signal = session.settings.signal;
    // A seccomp filter may kill the process for a system call that it does not expect.
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 || is_sandboxed() {
        return None;
    }
    // Without timers there is nothing to choose. This timer only shows whether the system allows
    // one, and is deleted at once.
    ThreadTimer::start(current_thread_id(), 1_000_000_000, signal, |_| {}).ok()?;
    static SPINNING_THREAD: AtomicU64 = AtomicU64::new(0);
    static END_SPIN: AtomicBool = AtomicBool::new(false);
    SPINNING_THREAD.store(0, Ordering::Release);
    END_SPIN.store(false, Ordering::Release);
    let spin = move || {
        with_signal_unblocked(signal, || {
            let own = u64::from(current_thread_id().to_number().unsigned_abs());
            SPINNING_THREAD.store(own, Ordering::Release);
            let mut interruptions = Vec::with_capacity(1024);
            let mut before = monotonic_now();
            while !END_SPIN.load(Ordering::Relaxed) {
                let now = monotonic_now();
                let gap_ns = now.since_ns(before);
                if gap_ns >= MIN_INTERRUPTION_NS && interruptions.len() < interruptions.capacity() {
                    interruptions.push((now, gap_ns));
                }
                before = now;
            }
            interruptions
        })
    };
    let thread = std::thread::Builder::new()
        .name("EngineTrial".to_owned())
        .spawn(spin)
        .ok()?;
    while SPINNING_THREAD.load(Ordering::Acquire) == 0 && !thread.is_finished() {
        std::thread::sleep(Duration::from_micros(20));
    }
    let spinner = ThreadId::from_number(SPINNING_THREAD.load(Ordering::Acquire) as i32);
    let begin = monotonic_now();
    // The handler returns at once, because this slot does not exist or has no such request.
    let unowned = SignalTicket {
        slot: u16::MAX,
        sequence: 0,
    };
    for interruption in (0..u64::from(INTERRUPTIONS)).take_while(|_| !session.is_stopping()) {
        sleep_until(begin.plus_ns((interruption + 1) * INTERVAL_NS));
        send_request(current_process_id(), spinner, signal, unowned);
    }
    sleep_until(monotonic_now().plus_ns(INTERVAL_NS));
    let between = monotonic_now();
    let timer = ThreadTimer::start(spinner, INTERVAL_NS, signal, |number| {
        TRIAL_TIMER.store(number, Ordering::Release);
    });
    for interruption in (0..=u64::from(INTERRUPTIONS)).take_while(|_| !session.is_stopping()) {
        sleep_until(between.plus_ns((interruption + 1) * INTERVAL_NS));
    }
    let has_timer = timer.is_ok();
    drop(timer);
    let end = monotonic_now();
    END_SPIN.store(true, Ordering::Release);
    let interruptions = thread.join().ok()?;
    TRIAL_TIMER.store(-1, Ordering::Release);
    let signal_ns = median_interruption(&interruptions, begin, between)?;
    let timer_ns = median_interruption(&interruptions, between, end).filter(|_| has_timer);
    Some(EngineTrial {
        signal_ns,
        timer_ns,
    })
}

/// Returns the median interruption between two times, in ns, or `None` if there are too few.
fn median_interruption(
    interruptions: &[(TimeStamp, u64)],
    from: TimeStamp,
    until: TimeStamp,
) -> Option<u64> {
    let mut within: Vec<u64> = interruptions
        .iter()
        .filter(|(at, _)| *at > from && *at <= until)
        .map(|&(_, gap_ns)| gap_ns)
        .collect();
    within.sort_unstable();
    let has_enough = within.len() >= INTERRUPTIONS as usize / 2;
    has_enough.then(|| within[within.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_interruption_covers_only_the_given_time() {
        let interruptions: Vec<(TimeStamp, u64)> = (0..20)
            .map(|number| (TimeStamp(number * 10), 1000 + number))
            .collect();
        assert_eq!(
            median_interruption(&interruptions, TimeStamp(0), TimeStamp(90)),
            Some(1005)
        );
        assert_eq!(
            median_interruption(&interruptions, TimeStamp(0), TimeStamp(30)),
            None
        );
    }
}
