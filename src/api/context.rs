//! Contexts: the request that a thread works on, in each of its samples.

use std::any::type_name;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::Context;

use crate::api::backend;
use crate::api::threads::register_polling_thread;
use crate::api::waiting_tasks::TaskWait;
use crate::types::{ContextWords, LabelOfOneThread};
use crate::util::PolledWith;

/// What a thread works on: the ids of a trace and a span, and up to four labels.
///
/// While a thread is in a context, each of its samples has the context: of running threads and of
/// those that wait. In the profile of the Firefox Profiler, the thread's track has an interval
/// “Context” for each time in which its samples had the same context, with the ids and the labels
/// as fields. It begins with the first of these samples and ends 1 µs after the last, so a request
/// without a sample has none. A search for a trace's id in the marker table selects the intervals.
/// Then “Drop samples outside of markers matching …” in a marker's menu leaves only the samples of
/// that request. In a pprof profile, the samples have the labels `trace_id`, `span_id`, and those
/// of the context.
///
/// ```
/// use gekkota::context::ProfilerContext;
///
/// fn answer(trace_id: u128, route: &str) {
///     let context = ProfilerContext::new().with_trace_id(trace_id).with_label("route", route);
///     let _context = context.enter();
///     // … the work: each sample in it has the context …
/// }
/// # answer(7, "/");
/// ```
///
/// A context is a few words, and may be copied, kept and sent to other threads. Two contexts are
/// equal if they have the same ids and labels.
///
/// The thread sets its context whether or not a session runs, so a session that starts later sees
/// it. A sample has the innermost context alone. To keep the ids and labels of the context around
/// it, take [`ProfilerContext::current`] and add to that.
///
/// Idea: Go's profiler labels.
#[doc(alias = "labels")]
#[doc(alias = "trace id")]
#[doc(alias = "exemplar")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct ProfilerContext(ContextWords);

impl ProfilerContext {
    /// Returns a context without ids and labels. Entering it hides the context around it.
    pub const fn new() -> Self {
        Self(ContextWords::NONE)
    }

    /// Returns the context of the calling thread.
    ///
    /// Cost: some loads.
    pub fn current() -> Self {
        Self(backend::current_context())
    }

    /// Sets the id of the trace, as W3C's Trace Context and OpenTelemetry have it: 16 bytes, as a
    /// number whose hexadecimal digits are those of the id. 0 means no trace.
    #[must_use]
    pub const fn with_trace_id(mut self, trace_id: u128) -> Self {
        self.0.trace = [(trace_id >> 64) as u64, trace_id as u64];
        self
    }

    /// Sets the id of the span, of 8 bytes. 0 means no span.
    #[must_use]
    pub const fn with_span_id(mut self, span_id: u64) -> Self {
        self.0.span = span_id;
        self
    }

    /// Adds a label, or replaces the one with this key. Beyond four labels, the label is dropped.
    ///
    /// Of the key and the value at most 128 bytes each are copied, cut at a character boundary.
    /// Each pair is stored once, until the process ends, because samples refer to it by number.
    /// After 65,536 different pairs, a further value becomes “(other)”; after 256 of these, the
    /// label is dropped. So take values that repeat, such as a route or a customer. Ids that do not
    /// repeat are for [`with_trace_id`](Self::with_trace_id).
    ///
    /// The keys `trace_id`, `span_id`, `type`, `stack`, `cause` and `innerWindowID` get an
    /// underscore in a profile, and in pprof `thread`, `thread_id`, `process`, `process_id`,
    /// `label` and `marker`, too.
    ///
    /// Adds no label if the caller is code that the profiler runs, such as the application's
    /// allocator.
    ///
    /// Cost: a lock and a lookup in a hash table, about 50 ns. Keep the context if it is entered
    /// often.
    #[must_use]
    pub fn with_label(mut self, key: &str, value: &str) -> Self {
        self.0.labels = backend::add_context_label(self.0.labels, key, value);
        self
    }

    /// Returns the id of the trace; 0 if there is none.
    pub const fn trace_id(&self) -> u128 {
        (self.0.trace[0] as u128) << 64 | self.0.trace[1] as u128
    }

    /// Returns the id of the span; 0 if there is none.
    pub const fn span_id(&self) -> u64 {
        self.0.span
    }

    /// Returns whether the context says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::new()
    }

    pub(crate) fn words(self) -> ContextWords {
        self.0
    }

    /// Makes this the context of the calling thread, and returns the one before.
    pub(crate) fn replace_current(self) -> Self {
        Self(backend::replace_context(self.0))
    }

    /// Makes this the context of the calling thread, until the result is dropped.
    ///
    /// Then the thread has the context again that it had before. If guards are dropped out of
    /// order, the thread has in the end what the guard that is dropped last had found. As with
    /// labels, the first context during a session registers a thread that has not registered.
    ///
    /// Do not hold the guard across an `.await`: use [`in_context`]. The guard is not `Send`, so a
    /// runtime with several threads refuses such a future. Do not enter a context in a signal
    /// handler.
    ///
    /// Cost: some 15 loads and stores to enter and to leave, no lock and no allocation.
    #[inline(always)]
    pub fn enter(self) -> AutoProfilerContext {
        AutoProfilerContext {
            before: backend::replace_context(self.0),
            of_one_thread: PhantomData,
        }
    }
}

/// The calling thread is in a context, from [`ProfilerContext::enter`] to the drop of this guard.
#[derive(Debug)]
#[must_use = "the thread leaves the context when this is dropped"]
pub struct AutoProfilerContext {
    before: ContextWords,
    of_one_thread: LabelOfOneThread,
}

impl Drop for AutoProfilerContext {
    #[inline(always)]
    fn drop(&mut self) {
        backend::replace_context(self.before);
    }
}

/// Puts a future into a context: whichever thread polls the future is in the context during the
/// poll.
///
/// ```
/// # async fn answer() -> u32 { 42 }
/// # fn spawn<F: Future>(_: F) {}
/// use gekkota::context::{ProfilerContext, in_context};
///
/// let context = ProfilerContext::new().with_trace_id(7).with_label("route", "/answer");
/// spawn(in_context(context, answer()));
/// ```
///
/// When the future is dropped, it is in the context of the thread that drops it.
///
/// While the profiler is active, a poll registers its thread under the thread's own name, if the
/// thread is not registered.
///
/// With the feature [`WAITING_TASKS`](crate::Features::WAITING_TASKS), the profile also shows when
/// the future waits, in this context. If no future around it or inside of it has a name, the wait
/// has that of the future's type, such as `app::answer`.
///
/// Cost: that of [`ProfilerContext::enter`] per poll, and while the profiler is active, a check
/// whether the thread is registered. The result is `Send` if `future` is, and some 80 bytes larger.
pub fn in_context<F: Future>(
    context: ProfilerContext,
    future: F,
) -> impl Future<Output = F::Output> {
    let mut wait = TaskWait::new();
    PolledWith::new(
        future,
        move |future: Pin<&mut F>, waker: &mut Context<'_>| {
            register_polling_thread();
            let _context = context.enter();
            // An `async fn` is a type inside of the function.
            let name = type_name::<F>().trim_end_matches("::{{closure}}");
            wait.poll_unnamed(name, || future.poll(waker))
        },
    )
}
