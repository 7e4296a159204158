//! How long a thread's event loop would keep an event waiting.

use std::fmt;

use crate::api::engine;
use crate::base::ProfilerTime;

/// An event that the calling thread's loop runs, from the making of this until its drop.
///
/// Samples of the thread tell meanwhile how long ago the event was queued: `eventDelay`, in milliseconds. That is how
/// long it waited and has run, so what somebody waits who wants anything of the thread. Between events it is 0; on a thread
/// that never made one of these it is null. The viewer shows an event of 50 ms or more as a marker “Jank”, also one that only
/// waited so long behind another. An event within an event, of a loop within the loop, counts while it runs, and then the
/// outer one again.
///
/// ```
/// use gekkota::ProfilerTime;
/// use gekkota::event_delay::AutoProfilerEvent;
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
/// Cost: about 5 ns, whether the profiler is active or not: a look at the calling thread's own registration, two stores at the
/// beginning and one at the end; [`new`](Self::new) reads the clock as well, 25 ns in all. Nobody else does anything for it:
/// a sample holds one number more. Where the loop's code cannot be changed, see
/// [`profiler_watch_event_loop`](crate::event_delay::profiler_watch_event_loop). Idea: Gecko's `nsThread::GetRunningEventDelay`.
#[doc(alias = "eventDelay")]
#[doc(alias = "responsiveness")]
#[doc(alias = "GetRunningEventDelay")]
#[doc(alias = "profiler_init_threadmanager")]
#[derive(Debug)]
#[must_use = "the event ends when this is dropped"]
pub struct AutoProfilerEvent(engine::EventToken);

impl AutoProfilerEvent {
    /// An event begins that did not wait, or of which nobody knows since when.
    #[expect(
        clippy::new_without_default,
        reason = "a guard with side effects is not a default value"
    )]
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

/// Watches the calling thread's event loop, where its code cannot say what [`AutoProfilerEvent`] says: `post` is given a
/// probe now and then, and puts it into the loop's queue as an event that calls [`EventDelayProbe::run`].
///
/// As long as a probe has not run, samples of the thread tell how long ago it was posted: `eventDelay`, in milliseconds, as a
/// marker “Jank” in the viewer where it reached 50. Between a probe's answer and the next probe it is 0. It is null where
/// nobody asks: before the first probe, after the last, and wherever the next one follows an answer by more than 64 ms, or four
/// of the session's intervals if that is longer, as when another watch's `post` waits, or over a pause of the session. Of
/// several watches of a thread, and its [`AutoProfilerEvent`]s, the longest delay counts.
///
/// `post` is called while a session runs that profiles the thread and is not paused, on a thread of the profiler's that it
/// shares with other watches; so it hands the probe over and waits for nothing. There is one probe at a time; the next comes 8 to
/// 16 ms after the answer, or after the session's interval if that is longer. The watch ends when this guard is dropped, when the
/// thread's registration ends, when a probe is dropped before it ran, as by a queue that is closed, and when `post` panics.
///
/// What `post` holds is dropped with this guard, on the guard's thread, unless `post` runs just then: then on the profiler's
/// thread, as after its panic. Where a registration or a dropped probe ended the watch, it is dropped on the profiler's thread
/// within some 10 ms, but only while a session runs; else when the next session has begun, or when any thread begins
/// another watch, on that thread. So let it hold nothing that keeps the loop from its end, or that is bound to a thread.
///
/// On a thread that is not registered nothing is watched. A delay shorter than the pause between probes may go unseen. In the
/// child of a fork the forking thread's watches go on, but for one whose `post` runs just then.
///
/// Cost: a lock and an allocation; then up to 125 events a second in the loop while a session runs, and about as many wake-ups of
/// the profiler's thread. Idea: Gecko's former `EventTracer`.
///
/// ```
/// use gekkota::ThreadGuard;
/// use gekkota::event_delay::{EventDelayProbe, profiler_watch_event_loop};
///
/// enum Event {
///     Work(u32),
///     Probe(EventDelayProbe),
///     Quit,
/// }
///
/// # let (sender, events) = std::sync::mpsc::channel();
/// # sender.send(Event::Work(1))?;
/// # sender.send(Event::Quit)?;
/// let _registered = ThreadGuard::register("loop");
/// let _watch = profiler_watch_event_loop(move |probe| {
///     // A loop that has ended gives the probe back, and that ends the watch.
///     let _ = sender.send(Event::Probe(probe));
/// });
/// for event in events {
///     match event {
///         Event::Work(number) => println!("{number}"),
///         Event::Probe(probe) => probe.run(),
///         Event::Quit => break,
///     }
/// }
/// # Ok::<(), std::sync::mpsc::SendError<Event>>(())
/// ```
#[doc(alias = "EventTracer")]
#[doc(alias = "eventDelay")]
#[doc(alias = "mThread")]
pub fn profiler_watch_event_loop(
    mut post: impl FnMut(EventDelayProbe) + Send + 'static,
) -> EventLoopWatch {
    EventLoopWatch(engine::watch_event_loop(Box::new(move |probe| {
        post(EventDelayProbe(probe))
    })))
}

/// A question to an event loop, on its way through the loop's queue: see [`profiler_watch_event_loop`].
#[must_use = "a probe that is dropped before it has run ends its watch"]
pub struct EventDelayProbe(engine::ProbeToken);

impl EventDelayProbe {
    /// Answers, on the loop's thread, when the loop has come to this event. Cost: the clock is read, a number stored.
    pub fn run(self) {
        self.0.answer();
    }
}

impl fmt::Debug for EventDelayProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventDelayProbe").finish_non_exhaustive()
    }
}

/// A watch of an event loop that ends with this: see [`profiler_watch_event_loop`].
#[derive(Debug)]
#[must_use = "the watch ends when this is dropped"]
pub struct EventLoopWatch(Option<engine::EventWatchToken>);

impl EventLoopWatch {
    /// Keeps watching for as long as the thread is registered.
    pub fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for EventLoopWatch {
    fn drop(&mut self) {
        if let Some(watch) = &self.0 {
            engine::unwatch_event_loop(watch);
        }
    }
}
