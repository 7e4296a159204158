//! Events and watches of the application's event loops, and the event watcher: a thread that posts
//! probes to all watched event loops while a session runs.
//!
//! The watcher runs a round every 8 ms. So a loop gets its next probe 8 to 16 ms after it answered
//! the previous one, as with Gecko's event tracer. No thread joins the watcher, because it may be
//! running the application's code.

use std::marker::PhantomData;
use std::time::Duration;

use crate::event_loop::{EventWatches, PostProbe, WatchWork};
use crate::platform::{
    monotonic_now, prepare_to_wait_as_loader_call, sleep_until, spawn_profiler_thread,
    with_signals_blocked,
};
use crate::session::dumps::causes::dump_for_ending_event;
use crate::session::dumps::dump::long_jank_ns;
use crate::session::running::running_session;
use crate::state::RacyFeatures;
use crate::threads::OnThreadRef;
use crate::types::ProfilerTime;
use crate::util::{is_any_lock_held_on_current_thread, run_callback};

/// An event that the event loop of the calling thread is running.
#[derive(Debug)]
pub(crate) struct EventToken {
    level: u32,
    own_thread: PhantomData<*const ()>,
}

/// Records that the event loop of the calling thread begins an event, which was queued at `queued`,
/// by default just now.
pub(crate) fn begin_event(queued: Option<ProfilerTime>) -> EventToken {
    let begin = || queued.map_or_else(monotonic_now, ProfilerTime::timestamp);
    // Level 0 means no event: the thread is not registered.
    let level = OnThreadRef::with(|thread| Some(thread.event_delay()?.begin(begin())))
        .flatten()
        .unwrap_or(0);
    EventToken {
        level,
        own_thread: PhantomData,
    }
}

/// Records that the event has ended.
pub(crate) fn end_event(event: &EventToken) {
    if let Some(limit_ns) = long_jank_ns() {
        dump_for_ending_event(limit_ns);
    }
    OnThreadRef::with(|thread| thread.event_delay().map(|delay| delay.end(event.level)));
}

/// Identifies a watch of an event loop.
#[derive(Debug)]
pub(crate) struct EventWatchToken(u64);

/// See `profiler_watch_event_loop`. Returns `None` if the calling thread is not registered.
pub(crate) fn watch_event_loop(post: PostProbe) -> Option<EventWatchToken> {
    if is_any_lock_held_on_current_thread() {
        return None;
    }
    let thread = OnThreadRef::with(|thread| thread.to_off_thread())?;
    let (id, ended) = EventWatches::add(thread, post);
    ended.into_iter().for_each(drop_quietly);
    // Repeats if another session has begun since then: the watcher must use that session's
    // interval.
    let mut ensured_for = None;
    while let Some((generation, session)) = running_session()
        && ensured_for.replace(generation) != Some(generation)
    {
        ensure_event_watcher(session.settings.interval);
    }
    Some(EventWatchToken(id))
}

/// Ends the watch, unless it has already ended.
pub(crate) fn unwatch_event_loop(watch: &EventWatchToken) {
    if is_any_lock_held_on_current_thread() {
        return;
    }
    EventWatches::remove(watch.0)
        .into_iter()
        .for_each(drop_quietly);
}

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
fn drop_quietly(post: PostProbe) {
    run_callback(|| drop(post));
}
