//! What the host says of its event loops.

use std::marker::PhantomData;

use crate::base::ProfilerTime;
use crate::platform::monotonic_now;
use crate::threads::CurrentThread;

/// An event that the calling thread's loop runs.
#[derive(Debug)]
pub(crate) struct EventToken {
    level: u32,
    own_thread: PhantomData<*const ()>,
}

/// The calling thread's loop runs an event from now on that was queued then, or just now.
pub(crate) fn begin_event(queued: Option<ProfilerTime>) -> EventToken {
    let begin = || queued.map_or_else(monotonic_now, ProfilerTime::timestamp);
    // None without a registration.
    let level = CurrentThread::with_event_delay(|delay| delay.begin(begin())).unwrap_or(0);
    EventToken { level, own_thread: PhantomData }
}

/// It has ended.
pub(crate) fn end_event(event: &EventToken) {
    CurrentThread::with_event_delay(|delay| delay.end(event.level));
}
