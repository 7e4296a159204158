//! How long a thread's event loop would keep an event waiting.

use crate::api::engine;
use crate::base::ProfilerTime;

/// An event that the calling thread's loop runs, from the making of this until its drop.
///
/// Samples of the thread tell meanwhile how long ago the event was queued: `eventDelay`, in milliseconds. That is how
/// long it waited and has run, so what somebody waits who wants anything of the thread. Between events it is 0; on a thread
/// that never made one of these it is null. The viewer shows an event of 50 ms or more as a marker “Jank”. An event within an
/// event, of a loop within the loop, counts while it runs, and then the outer one again.
///
/// ```
/// use gekkota::{AutoProfilerEvent, ProfilerTime};
///
/// # let (sender, events) = std::sync::mpsc::channel();
/// sender.send((ProfilerTime::now(), "work"))?;
/// # drop(sender);
/// for (queued_at, work) in events {
///     let _event = AutoProfilerEvent::queued_at(queued_at);
///     println!("{work}");
/// }
/// # Ok::<(), std::sync::mpsc::SendError<(ProfilerTime, &str)>>(())
/// ```
///
/// On a thread that is not registered nothing happens. It is seen by samples of a session that began after it. It is bound
/// to its thread; one that is dropped out of order ends those that were made after it, and one that is forgotten counts until
/// the one around it ends, or the thread's registration. So keep it out of a future that waits: there it runs no longer.
///
/// Cost: a look at the calling thread's own registration, two stores at the beginning and one at the end, whether the
/// profiler is active or not; [`new`](Self::new) reads the clock as well. Nobody else does anything for it: a sample holds
/// one number more. Where the loop's code cannot be changed, see
/// [`profiler_watch_event_loop`](crate::profiler_watch_event_loop). Idea: Gecko's `nsThread::GetRunningEventDelay`.
#[doc(alias = "eventDelay")]
#[doc(alias = "responsiveness")]
#[doc(alias = "GetRunningEventDelay")]
#[doc(alias = "profiler_init_threadmanager")]
#[derive(Debug)]
#[must_use = "the event ends when this is dropped"]
pub struct AutoProfilerEvent(engine::EventToken);

impl AutoProfilerEvent {
    /// An event begins that did not wait, or of which nobody knows since when.
    #[expect(clippy::new_without_default, reason = "a guard with side effects is not a default value")]
    pub fn new() -> Self {
        Self(engine::begin_event(None))
    }

    /// An event begins that was queued then. A time that is still to come counts from when it has.
    pub fn queued_at(time: ProfilerTime) -> Self {
        Self(engine::begin_event(Some(time)))
    }
}

impl Drop for AutoProfilerEvent {
    fn drop(&mut self) {
        engine::end_event(&self.0);
    }
}
