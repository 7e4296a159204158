//! The event watcher: a thread that posts probes to all watched event loops while a session runs.
//!
//! The watcher runs a round every 8 ms. So a loop gets its next probe 8 to 16 ms after it answered
//! the previous one, as with Gecko's event tracer. No thread joins the watcher, because it may be
//! running the application's code.

use std::time::Duration;

use crate::event_loop::{EventWatches, PostProbe, WatchWork};
use crate::platform::{
    monotonic_now, prepare_to_wait_as_loader_call, sleep_until, spawn_profiler_thread,
    with_signals_blocked,
};
use crate::state::RacyFeatures;
use crate::util::run_callback;

/// Time between two rounds, in ns, as in Gecko.
const ROUND_NS: u64 = 8_000_000;

/// Starts the watcher, if it is needed and not running. If the system refuses the thread, the next
/// watch or session tries again.
pub(crate) fn ensure_event_watcher(interval: Duration) {
    // Delays are recorded with samples, so more frequent probes are useless.
    let pause_ns = ROUND_NS.max(interval.as_nanos() as u64);
    if EventWatches::claim_watcher(pause_ns)
        && with_signals_blocked(|| spawn_profiler_thread(c"EventWatcher", watch)).is_err()
    {
        EventWatches::release_watcher_claim();
    }
}

fn work() -> WatchWork {
    if !RacyFeatures::is_active() {
        WatchWork::End
    } else if RacyFeatures::is_sampling_paused() {
        WatchWork::Idle
    } else {
        WatchWork::Post
    }
}

fn watch() {
    prepare_to_wait_as_loader_call();
    let mut next = monotonic_now();
    while let Some(round) = EventWatches::begin_round(next, work) {
        round.over.into_iter().for_each(drop_quietly);
        for mut due in round.due {
            let probe = due.probed.post(monotonic_now());
            let mut is_posted = false;
            run_callback(|| {
                (due.post)(probe);
                is_posted = true;
            });
            let ended = if is_posted {
                EventWatches::put_back(due)
            } else {
                EventWatches::discard(due)
            };
            ended.into_iter().for_each(drop_quietly);
        }
        next = monotonic_now().plus_ns(ROUND_NS);
        sleep_until(next);
    }
}

/// Drops a closure of the application, and catches a panic of its captured values' destructors.
pub(crate) fn drop_quietly(post: PostProbe) {
    run_callback(|| drop(post));
}
