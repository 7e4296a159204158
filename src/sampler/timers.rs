//! The second engine: each thread that runs has a timer of its own, which stops it.
//!
//! Which of the two costs a thread less depends on the machine: a signal from another processor costs an interrupt
//! across, a timer costs one of the machine's timer, and a little with each switch of its thread. A trial tells.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::base::{ThreadId, TimeStamp};
use crate::platform::{
    SignalTicket, ThreadTimer, current_process_id, current_thread_id, is_sandboxed, monotonic_now,
    send_request, sleep_until, with_signals_unblocked,
};
use crate::sampler::handler::TRIAL_TIMER;
use crate::state::{EngineTrial, Session, SessionCounts};
use crate::threads::SlotHandle;

/// A thread's timer, made when it is needed first.
#[derive(Debug, Default)]
pub(super) enum TimerState {
    #[default]
    NotYet,
    Runs {
        #[expect(dead_code, reason = "it runs as long as it is kept")]
        timer: ThreadTimer,
    },
    /// The system would not make one.
    Refused,
}

impl TimerState {
    /// Makes the timer if there is none; false where the system refuses.
    pub(super) fn ensure(
        &mut self,
        thread: ThreadId,
        slot: &SlotHandle,
        session: &Session,
    ) -> bool {
        if matches!(self, Self::NotYet) {
            let settings = &session.settings;
            let interval_ns = settings.interval.as_nanos() as u64;
            let note = |number| slot.set_timer(number);
            *self = match ThreadTimer::start_as(thread, interval_ns, settings.signal, note) {
                Ok(timer) => Self::Runs { timer },
                Err(_) => {
                    SessionCounts::add(&session.counts.refused_timers, 1);
                    Self::Refused
                }
            };
        }
        matches!(self, Self::Runs { .. })
    }

    /// Ends the timer. The slot keeps its number until the next session, so that a signal of its that is on its way is
    /// known still.
    pub(super) fn end(&mut self) {
        if matches!(self, Self::Runs { .. }) {
            *self = Self::NotYet;
        }
    }
}

/// One trial for a process: machines do not change. Without a lock, which a fork could leave held.
static TRIAL: AtomicU8 = AtomicU8::new(UNTRIED);
const UNTRIED: u8 = 0;
const RUNNING: u8 = 1;
const DONE: u8 = 2;
/// A trial of a session before may run on so long; in the child of a fork, one of the parent's for ever.
const LONGEST_TRIAL: Duration = Duration::from_secs(1);
/// What it found; 0 where it found nothing, or not yet.
static SIGNAL_NS: AtomicU64 = AtomicU64::new(0);
static TIMER_NS: AtomicU64 = AtomicU64::new(0);

/// So often a thread is stopped by each engine.
const STOPS: u32 = 12;
const INTERVAL_NS: u64 = 150_000;
/// A gap shorter than this is no stop.
const SHORTEST_STOP_NS: u64 = 800;

/// What a stop by each engine takes from a running thread, on this machine. The first call takes 4 ms, of which a thread
/// that is made for it spins; later ones know. `None` where it cannot be found out, for the want of a second processor, say.
pub(super) fn try_engines(session: &Session) -> Option<EngineTrial> {
    let end = Instant::now() + LONGEST_TRIAL;
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
        // One that was cut short is made again by the next session.
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
    // A filter of system calls may kill for a request that it does not know.
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 || is_sandboxed() {
        return None;
    }
    // Where there are none, there is nothing to choose. This one does not get to fire: its thread only sleeps.
    ThreadTimer::start_as(current_thread_id(), 1_000_000_000, signal, |_| {}).ok()?;
    static SPINNER: AtomicU64 = AtomicU64::new(0);
    static ENDS: AtomicBool = AtomicBool::new(false);
    SPINNER.store(0, Ordering::Release);
    ENDS.store(false, Ordering::Release);
    let spin = move || {
        with_signals_unblocked(signal, || {
            let own = u64::from(current_thread_id().to_number().unsigned_abs());
            SPINNER.store(own, Ordering::Release);
            let mut stops = Vec::with_capacity(1024);
            let mut before = monotonic_now();
            while !ENDS.load(Ordering::Relaxed) {
                let now = monotonic_now();
                let gap_ns = now.since_ns(before);
                if gap_ns >= SHORTEST_STOP_NS && stops.len() < stops.capacity() {
                    stops.push((now, gap_ns));
                }
                before = now;
            }
            stops
        })
    };
    let thread = std::thread::Builder::new()
        .name("EngineTrial".to_owned())
        .spawn(spin)
        .ok()?;
    while SPINNER.load(Ordering::Acquire) == 0 && !thread.is_finished() {
        std::thread::sleep(Duration::from_micros(20));
    }
    let spinner = ThreadId::from_number(SPINNER.load(Ordering::Acquire) as i32);
    let begin = monotonic_now();
    // Nobody's slot and request: the handler finds that out and returns.
    let nobodys = SignalTicket {
        slot: u16::MAX,
        sequence: 0,
    };
    for stop in (0..u64::from(STOPS)).take_while(|_| !session.is_stopping()) {
        sleep_until(begin.plus_ns((stop + 1) * INTERVAL_NS));
        send_request(current_process_id(), spinner, signal, nobodys);
    }
    sleep_until(monotonic_now().plus_ns(INTERVAL_NS));
    let between = monotonic_now();
    let timer = ThreadTimer::start_as(spinner, INTERVAL_NS, signal, |number| {
        TRIAL_TIMER.store(number, Ordering::Release);
    });
    for stop in (0..=u64::from(STOPS)).take_while(|_| !session.is_stopping()) {
        sleep_until(between.plus_ns((stop + 1) * INTERVAL_NS));
    }
    let has_timer = timer.is_ok();
    drop(timer);
    let end = monotonic_now();
    ENDS.store(true, Ordering::Release);
    let stops = thread.join().ok()?;
    TRIAL_TIMER.store(-1, Ordering::Release);
    let signal_ns = usual_stop(&stops, begin, between)?;
    let timer_ns = usual_stop(&stops, between, end).filter(|_| has_timer);
    Some(EngineTrial {
        signal_ns,
        timer_ns,
    })
}

/// The median of the stops in this time; `None` when there are too few.
fn usual_stop(stops: &[(TimeStamp, u64)], from: TimeStamp, until: TimeStamp) -> Option<u64> {
    let mut within: Vec<u64> = stops
        .iter()
        .filter(|(at, _)| *at > from && *at <= until)
        .map(|&(_, gap_ns)| gap_ns)
        .collect();
    within.sort_unstable();
    let enough = within.len() >= STOPS as usize / 2;
    enough.then(|| within[within.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_stop_is_the_median_of_those_in_the_time() {
        let stops: Vec<(TimeStamp, u64)> = (0..20)
            .map(|number| (TimeStamp(number * 10), 1000 + number))
            .collect();
        assert_eq!(usual_stop(&stops, TimeStamp(0), TimeStamp(90)), Some(1005));
        assert_eq!(usual_stop(&stops, TimeStamp(0), TimeStamp(30)), None);
    }
}
