//! The thread that posts probes to the event loops that are watched: one for all, while a session runs.
//!
//! It looks each 8 ms; so a loop has its next probe 8 to 16 ms after it answered the one before, as with Gecko's event
//! tracer. Nobody waits for it: it may be in the host's code.

use std::time::Duration;

use crate::base::call_host;
use crate::platform::{monotonic_now, sleep_until, spawn_profiler_thread, with_signals_blocked};
use crate::state::RacyFeatures;
use crate::threads::{EventWatches, PostProbe, WatchWork};

const ROUND_NS: u64 = 8_000_000;

/// Makes the watcher, if it is needed and there is none. A system that refuses to is asked again for the next watch or session.
pub(super) fn ensure_event_watcher(interval: Duration) {
    // More often than samples are taken nobody sees it.
    let pause_ns = ROUND_NS.max(interval.as_nanos() as u64);
    if EventWatches::claim_watcher(pause_ns)
        && with_signals_blocked(|| spawn_profiler_thread(c"EventWatcher", watch)).is_err()
    {
        EventWatches::give_watcher_up();
    }
}

fn work() -> WatchWork {
    if !RacyFeatures::is_active() {
        WatchWork::End
    } else if RacyFeatures::is_sampling_paused() {
        WatchWork::Rest
    } else {
        WatchWork::Post
    }
}

fn watch() {
    let mut next = monotonic_now();
    while let Some(round) = EventWatches::begin_round(next, work) {
        round.over.into_iter().for_each(drop_quietly);
        for mut due in round.due {
            let probe = due.probed.post(monotonic_now());
            let mut is_posted = false;
            call_host(|| {
                (due.post)(probe);
                is_posted = true;
            });
            let over = if is_posted {
                EventWatches::put_back(due)
            } else {
                EventWatches::discard(due)
            };
            over.into_iter().for_each(drop_quietly);
        }
        next = monotonic_now().plus_ns(ROUND_NS);
        sleep_until(next);
    }
}

/// What the host's function holds may panic when it is dropped.
pub(super) fn drop_quietly(post: PostProbe) {
    call_host(|| drop(post));
}
