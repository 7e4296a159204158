//! Events and watches of the application's event loops.

use std::marker::PhantomData;

use crate::event_loop::{EventWatches, PostProbe};
use crate::platform::monotonic_now;
use crate::session::dump_janks::dump_for_ending_event;
use crate::session::dumps::long_jank_ns;
use crate::session::event_watcher::{drop_quietly, ensure_event_watcher};
use crate::session::running::running_session;
use crate::threads::OnThreadRef;
use crate::types::ProfilerTime;
use crate::util::is_any_lock_held_on_current_thread;

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
