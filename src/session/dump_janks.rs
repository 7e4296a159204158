//! Dumps because an event loop has handled no new event for too long.
//!
//! A loop that reports its events shows the age of the running event next to the loop's slot. A
//! probed loop shows since when a probe waits. A thread of the profiler looks at both while the
//! jank lasts. The loop's own thread sees a jank that ended before the profiler's thread looked
//! again.

use crate::event_loop::EventWatches;
use crate::platform::monotonic_now;
use crate::session::dump_causes::dump_on_track;
use crate::session::dumps::long_jank_ns;
use crate::state::RacyFeatures;
use crate::threads::{OffThreadRef, OnThreadRef, ThreadRegistry};
use crate::types::ThreadProfilingFeatures;
use crate::util::{PsLock, is_any_lock_held_on_current_thread};

/// Forgets the long waits of probes that have been answered.
pub(super) fn forget_janks() {
    for probed in EventWatches::probed_loops() {
        probed.take_long_wait(u64::MAX);
    }
}

/// Dumps for each event loop with a jank that was not noticed yet.
pub(super) fn dump_for_janks() {
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
        dump(&thread, ns);
    }
}

/// Dumps if the event that the calling thread is about to end was a jank that was not noticed yet.
#[cold]
#[inline(never)]
pub(super) fn dump_for_ending_event(limit_ns: u64) {
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
        dump(&thread, ns);
    }
}

fn dump(thread: &OffThreadRef, ns: u64) {
    let reason = || {
        let name = thread.unlocked_const_reader_and_atomic_rw().name();
        let seconds = ns as f64 / 1e9;
        format!("jank: {name} handled no new event for {seconds:.3} s")
    };
    // If that is refused, the next dump has the number of such causes.
    let _ = dump_on_track(thread, reason, ns);
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
