//! Dumps that a thread of the profiler causes, with a marker on the track that the cause belongs
//! to: because of a signal, of a limit of CPU time or memory, or of an event loop that has handled
//! no new event for too long, which is a jank.
//!
//! A loop that reports its events shows the age of the running event next to the loop's slot. A
//! probed loop shows since when a probe waits. A thread of the profiler looks at both while the
//! jank lasts. The loop's own thread sees a jank that ended before the profiler's thread looked
//! again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::event_loop::EventWatches;
use crate::markers::{MarkerDestination, MarkerEntry, MarkerTiming, NewMarker, TextPayload};
use crate::platform::{
    ResidentMemory, main_thread_id, monotonic_now, process_cpu_ns, sleep_until, usable_processors,
};
use crate::session::dumps::dump::{
    Cause, WrittenDump, long_jank_ns, permit_dump, spawn_task, to_ns,
};
use crate::state::{CorePs, RacyFeatures, find_thread, put_entry};
use crate::threads::{OffThreadRef, OnThreadRef, ThreadRegistry};
use crate::types::{
    DumpError, DumpSettings, ProfilingCategoryPair, ThreadProfilingFeatures, TimeStamp,
};
use crate::util::{PsLock, is_any_lock_held_on_current_thread};

/// Dumps, with a marker on the main thread's track; if the session does not record that, on the
/// track of the first registered thread that it records. `counts` is whether a refusal counts as
/// one.
///
/// # Errors
/// Those of `permit_dump`, and [`DumpError::System`].
pub(crate) fn dump_on_main_track(reason: &str, counts: bool) -> Result<WrittenDump, DumpError> {
    let permit = permit_dump(counts)?;
    if let Some(thread) = main_track() {
        add_dump_marker(&thread, &permit.whole_reason(reason));
    }
    permit.write(None, reason, Cause::Other)
}

fn main_track() -> Option<OffThreadRef> {
    let main = find_thread(main_thread_id());
    main.filter(is_recorded).or_else(|| {
        let mut first: Option<OffThreadRef> = None;
        ThreadRegistry::for_each(&PsLock::acquire(), |thread| {
            let is_earlier = |first: &OffThreadRef| thread.serial() < first.serial();
            if is_recorded(thread) && first.as_ref().is_none_or(is_earlier) {
                first = Some(thread.clone());
            }
        });
        first
    })
}

fn is_recorded(thread: &OffThreadRef) -> bool {
    let thread = thread.unlocked_const_reader_and_atomic_rw();
    let features = thread.profiling_features();
    features.intersects(ThreadProfilingFeatures::MARKERS)
}

/// Adds the marker, if the session records the thread's.
fn add_dump_marker(thread: &OffThreadRef, reason: &str) {
    let Some(since) = RacyFeatures::recording() else {
        return;
    };
    let now = monotonic_now();
    let reader = thread.unlocked_const_reader_and_atomic_rw();
    let session = reader.begin_entry(ThreadProfilingFeatures::MARKERS);
    let Some(session) = session.filter(|_| RacyFeatures::still_records(since)) else {
        return;
    };
    let destination = MarkerDestination {
        session,
        thread: thread.serial(),
        now,
        rarity: None,
    };
    let marker = NewMarker {
        name: "Dump",
        category: ProfilingCategoryPair::Profiler(None).indices().0,
        timing: &MarkerTiming::instant_now(),
        stack: 0,
    };
    let process_start = CorePs::process_start().monotonic;
    let entry = MarkerEntry::new(&destination, process_start, &marker, TextPayload(reason));
    put_entry(session, now, entry);
}

/// Forgets the long waits of probes that have been answered.
fn forget_janks() {
    for probed in EventWatches::probed_loops() {
        probed.take_long_wait(u64::MAX);
    }
}

/// Dumps for each event loop with a jank that was not noticed yet.
fn dump_for_janks() {
    let Some(limit_ns) = long_jank_ns() else {
        return;
    };
    if !is_sampling() {
        // A later dump would not show them.
        return forget_janks();
    }
    let mut janks: Vec<(OffThreadRef, u64)> = Vec::new();
    for probed in EventWatches::probed_loops() {
        if let Some(ns) = probed
            .take_long_wait(limit_ns)
            .filter(|_| probed.is_profiled())
        {
            janks.push((probed.thread.clone(), ns));
        }
    }
    ThreadRegistry::for_each(&PsLock::acquire(), |thread| {
        let slot = thread.unlocked_const_reader().slot();
        let slot = slot.filter(|_| is_profiled(thread));
        let taken = slot.and_then(|slot| {
            let delay = slot.event_delay();
            delay.take_long_delay(limit_ns, monotonic_now)
        });
        janks.extend(taken.map(|ns| (thread.clone(), ns)));
    });
    for (thread, ns) in janks {
        dump_for_jank(&thread, ns);
    }
}

/// Dumps if the event that the calling thread is about to end was a jank that was not noticed yet.
#[cold]
#[inline(never)]
pub(crate) fn dump_for_ending_event(limit_ns: u64) {
    if !is_sampling() || is_any_lock_held_on_current_thread() {
        return;
    }
    let take = |thread: OnThreadRef<'_>| {
        let delay = thread.event_delay()?;
        let ns = delay.take_long_delay(limit_ns, monotonic_now)?;
        Some((thread.to_off_thread(), ns))
    };
    let jank = OnThreadRef::with(take).flatten();
    if let Some((thread, ns)) = jank.filter(|(thread, _)| is_profiled(thread)) {
        dump_for_jank(&thread, ns);
    }
}

/// Dumps, with a marker on the thread's track, unless that is refused: the next dump has the number of
/// such causes. The dump has all of the jank.
fn dump_for_jank(thread: &OffThreadRef, ns: u64) {
    let Ok(permit) = permit_dump(true) else {
        return;
    };
    let name = thread.unlocked_const_reader_and_atomic_rw().name();
    let seconds = ns as f64 / 1e9;
    let reason = format!("jank: {name} handled no new event for {seconds:.3} s");
    add_dump_marker(thread, &permit.whole_reason(&reason));
    let _ = permit.write(None, &reason, Cause::Lasting(Duration::from_nanos(ns)));
}

/// Returns whether a session records samples now: without them, a dump would not show the jank.
fn is_sampling() -> bool {
    RacyFeatures::is_active() && !RacyFeatures::is_sampling_paused()
}

fn is_profiled(thread: &OffThreadRef) -> bool {
    let thread = thread.unlocked_const_reader_and_atomic_rw();
    let features = thread.profiling_features();
    features.intersects(ThreadProfilingFeatures::ANY)
}

/// Time between two checks of CPU time and memory, in ns.
const INTERVAL_NS: u64 = 1_000_000_000;
/// Minimum time between two checks of event loops, in ns.
const MIN_JANK_INTERVAL_NS: u64 = 5_000_000;

/// The number of the newest thread. Older threads end.
static NEWEST: AtomicU64 = AtomicU64::new(0);

/// Lets a new thread check the limits of these settings, if they have any, instead of the thread
/// before.
///
/// # Errors
/// [`DumpError::System`]
pub(crate) fn watch_limits(settings: Option<&DumpSettings>) -> Result<(), DumpError> {
    let number = NEWEST.fetch_add(1, Ordering::AcqRel) + 1;
    let Some(watched) = settings.filter(|settings| has_limits(settings)) else {
        return Ok(());
    };
    let watcher = LimitWatcher::new(watched.clone());
    spawn_task(move || watcher.run(number)).map_err(|error| DumpError::System {
        action: "create a thread that checks the limits",
        answer: error.to_string(),
    })
}

fn has_limits(settings: &DumpSettings) -> bool {
    settings.cpu_share.is_some() || settings.memory_bytes.is_some() || settings.long_jank.is_some()
}

/// The settings that the thread checks, and its earlier findings.
struct LimitWatcher {
    settings: DumpSettings,
    memory: ResidentMemory,
    /// The time of the last check, and the CPU time of the process then.
    last: Option<(TimeStamp, u64)>,
    /// What was done since the CPU time, and the memory, exceeded their limits.
    done: [Done; 2],
}

/// What was done since a limit is exceeded.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Done {
    #[default]
    Nothing,
    Refused,
    Dumped,
}

/// Dumps, unless that is refused. Only the first refusal counts as a cause.
fn dump_for_limit(reason: &str, before: Done) -> Done {
    match dump_on_main_track(reason, before == Done::Nothing) {
        Ok(_) => Done::Dumped,
        Err(_) => Done::Refused,
    }
}

/// Returns the time between two checks of event loops, in ns.
fn jank_interval_ns(limit: Duration) -> u64 {
    (to_ns(limit) / 4).clamp(MIN_JANK_INTERVAL_NS, INTERVAL_NS)
}

impl LimitWatcher {
    fn new(settings: DumpSettings) -> Self {
        Self {
            settings,
            memory: ResidentMemory::default(),
            last: None,
            done: [Done::default(); 2],
        }
    }

    /// Checks until a newer thread takes over.
    fn run(mut self, number: u64) {
        let interval_ns = self
            .settings
            .long_jank
            .map_or(INTERVAL_NS, jank_interval_ns);
        let mut due = monotonic_now().plus_ns(INTERVAL_NS);
        // Under these settings, janks that have already ended cause no dump.
        forget_janks();
        loop {
            sleep_until(monotonic_now().plus_ns(interval_ns));
            if NEWEST.load(Ordering::Acquire) != number {
                return;
            }
            if self.settings.long_jank.is_some() {
                dump_for_janks();
            }
            let now = monotonic_now();
            if now >= due {
                due = now.plus_ns(INTERVAL_NS);
                self.check_limits();
            }
        }
    }

    fn check_limits(&mut self) {
        let reasons = [self.cpu_reason(), self.memory_reason()];
        for (reason, done) in reasons.into_iter().zip(&mut self.done) {
            *done = match (reason, *done) {
                (None, _) => Done::Nothing,
                (Some(_), Done::Dumped) => Done::Dumped,
                // A refused dump is tried again, as long as the limit is exceeded.
                (Some(reason), before) => dump_for_limit(&reason, before),
            };
        }
    }

    /// Returns the reason if the CPU time is above its limit.
    fn cpu_reason(&mut self) -> Option<String> {
        let now = (monotonic_now(), process_cpu_ns());
        let (time, cpu_ns) = self.last.replace(now)?;
        let passed_ns = now.0.since_ns(time).max(1);
        let used_ns = now.1.saturating_sub(cpu_ns) as f64;
        let share = used_ns / (passed_ns as f64 * usable_processors() as f64);
        let is_above = share > self.settings.cpu_share?;
        is_above.then(|| format!("the process used {:.0} % of the processors", share * 100.0))
    }

    /// Returns the reason if the memory is above its limit.
    fn memory_reason(&mut self) -> Option<String> {
        let limit = self.settings.memory_bytes?;
        let bytes = self.memory.bytes().filter(|bytes| *bytes > limit)?;
        Some(format!("the process has {} MiB in memory", bytes >> 20))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn janks_are_checked_four_times_within_their_limit() {
        assert_eq!(jank_interval_ns(Duration::from_millis(100)), 25_000_000);
        assert_eq!(jank_interval_ns(Duration::ZERO), MIN_JANK_INTERVAL_NS);
        assert_eq!(jank_interval_ns(Duration::MAX), INTERVAL_NS);
    }
}
