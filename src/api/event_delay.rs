//! The delay of events in an event loop.

use std::fmt;

use crate::api::backend;
use crate::types::ProfilerTime;

/// An event that the event loop of the calling thread handles, from construction to drop.
///
/// While it is handled, the thread's samples record in `eventDelay` how long ago it was queued, in
/// milliseconds: the time that a new event would have waited so far. Between events the delay is 0.
/// On a thread that never constructed this guard it is null. The viewer shows a delay of 50 ms or
/// more as a marker “Jank”, even if the event spent that time waiting behind another one. In nested
/// event loops the inner event counts while it is handled, then the outer one again.
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
/// The guard does nothing on an unregistered thread. A session that starts later sees the event
/// too. The guard is bound to its thread. If it is dropped out of order, it ends the events that
/// began after it. If it is forgotten, its event lasts until the enclosing event or the thread's
/// registration ends. Do not hold the guard across `.await`, because the event is not handled while
/// the future waits.
///
/// Cost: about 5 ns, whether the profiler is active or not: one lookup of the thread's
/// registration, two stores at construction and one at drop. [`new`](Self::new) also reads the
/// clock, 25 ns in all. A sample holds one number more. For a loop whose code cannot be changed,
/// see [`profiler_watch_event_loop`]. Idea: Gecko's `nsThread::GetRunningEventDelay`.
#[doc(alias = "eventDelay")]
#[doc(alias = "responsiveness")]
#[doc(alias = "GetRunningEventDelay")]
#[doc(alias = "profiler_init_threadmanager")]
#[derive(Debug)]
#[must_use = "the event ends when this is dropped"]
pub struct AutoProfilerEvent(backend::EventToken);

impl AutoProfilerEvent {
    /// Begins an event that did not wait, or whose queueing time is unknown.
    #[expect(
        clippy::new_without_default,
        reason = "a guard with side effects is not a default value"
    )]
    pub fn new() -> Self {
        Self(backend::begin_event(None))
    }

    /// Begins an event that was queued at `time`. A time in the future counts as a delay of 0 until
    /// it is reached.
    pub fn queued_at(time: ProfilerTime) -> Self {
        Self(backend::begin_event(Some(time)))
    }
}

impl Drop for AutoProfilerEvent {
    fn drop(&mut self) {
        backend::end_event(&self.0);
    }
}

/// Measures the event delay of the calling thread with probes, for a loop whose code cannot
/// construct [`AutoProfilerEvent`]. `post` receives a probe from time to time, and puts it into the
/// loop's queue as an event that calls [`EventDelayProbe::run`].
///
/// While a probe is pending, the thread's samples record in `eventDelay` how long ago it was
/// posted, in milliseconds. The viewer shows 50 ms or more as a marker “Jank”. Between an answer
/// and the next probe the delay is 0. It is null before the first probe, after the last one, and in
/// a gap: if the next probe follows an answer by more than 64 ms or four session intervals,
/// whichever is longer. A gap arises while another watch's `post` blocks, and in a pause. If a
/// thread has several watches, or a watch and [`AutoProfilerEvent`]s, the longest delay counts.
///
/// `post` is called while a session profiles the thread and is not paused, on a thread of the
/// profiler that all watches share. It must pass the probe on without waiting. A watch has at most
/// one pending probe. The next one follows 8 to 16 ms after the answer, or one session interval if
/// that is longer. The watch ends when the guard is dropped, when the thread's registration ends,
/// when a probe is dropped before it ran (by a closed queue, for example), and when `post` panics.
///
/// Dropping the guard drops `post` on the guard's thread. If `post` is running at that moment, or
/// has panicked, it is dropped on the profiler's thread. After a watch ended by itself, `post` is
/// dropped on the profiler's thread within about 10 ms while a session runs. Without a session, it
/// is dropped after the next session begins, or by the next thread that begins a watch. Therefore
/// `post` must not own anything that is bound to a thread, or that keeps the loop alive.
///
/// Does nothing on an unregistered thread. A delay that is shorter than the time between
/// probes may be missed. In the child of a fork the watches of the forking thread continue, except
/// one whose `post` was running during the fork.
///
/// Cost: a lock and an allocation; then, while a session runs, up to 125 events per second in the
/// loop and about as many wake-ups of the profiler's thread. Idea: Gecko's former `EventTracer`.
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
///     // A closed channel returns the probe. Dropping it ends the watch.
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
    EventLoopWatch(backend::watch_event_loop(Box::new(move |probe| {
        post(EventDelayProbe(probe))
    })))
}

/// A probe on its way through the queue of an event loop: see [`profiler_watch_event_loop`].
#[must_use = "a probe that is dropped before it has run ends its watch"]
pub struct EventDelayProbe(backend::ProbeToken);

impl EventDelayProbe {
    /// Answers the probe. Call this on the loop's thread when the loop handles the probe's event.
    ///
    /// Cost: reads the clock and stores a number.
    pub fn run(self) {
        self.0.answer();
    }
}

impl fmt::Debug for EventDelayProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventDelayProbe").finish_non_exhaustive()
    }
}

/// A guard that ends the watch of an event loop when it is dropped: see
/// [`profiler_watch_event_loop`].
#[derive(Debug)]
#[must_use = "the watch ends when this is dropped"]
pub struct EventLoopWatch(Option<backend::EventWatchToken>);

impl EventLoopWatch {
    /// Keeps the watch until the thread's registration ends.
    pub fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for EventLoopWatch {
    fn drop(&mut self) {
        if let Some(watch) = &self.0 {
            backend::unwatch_event_loop(watch);
        }
    }
}
