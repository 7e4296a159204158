//! What a wrapped future keeps, so that a session can record where it waits.

use std::task::Poll;

use crate::api::backend;
#[cfg(feature = "tracing")]
use crate::api::context::ProfilerContext;

/// Records where a wrapped future waits, with the feature
/// [`WAITING_TASKS`](crate::Features::WAITING_TASKS). Ends the wait when it is dropped.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct TaskWait(backend::TaskWait);

/// Ends a poll that panics.
struct PollGuard<'a> {
    wait: &'a mut backend::TaskWait,
    begun: Option<backend::BegunPoll>,
}

impl Drop for PollGuard<'_> {
    fn drop(&mut self) {
        if let Some(begun) = self.begun.take() {
            self.wait.abandon_poll(begun);
        }
    }
}

/// The entry into a span whose future's waits a session records.
#[cfg(feature = "tracing")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct EnteredWait {
    begun: backend::BegunPoll,
    context: backend::ContextWords,
}

/// Returns whether a session records waits: one relaxed load.
#[cfg(feature = "tracing")]
#[inline(always)]
pub(crate) fn records_waits() -> bool {
    backend::are_waits_recorded()
}

impl TaskWait {
    /// Ends the wait of a span that the thread enters, with the context that it has in the span.
    /// Returns `None` if the entry is not recorded.
    #[cfg(feature = "tracing")]
    pub(crate) fn enter(
        &mut self,
        name: &str,
        span: u64,
        context: ProfilerContext,
    ) -> Option<EnteredWait> {
        let begun = self.0.begin_poll(name, "", span)?;
        let context = context.words();
        Some(EnteredWait { begun, context })
    }

    /// Begins the wait of a span that the thread exits, unless another thread is in the span.
    #[cfg(feature = "tracing")]
    pub(crate) fn exit(&mut self, entered: EnteredWait) {
        self.0.exit_span(entered.begun, entered.context);
    }

    /// Ends an entry whose exit will not be noticed.
    #[cfg(feature = "tracing")]
    pub(crate) fn abandon(&mut self, entered: EnteredWait) {
        self.0.abandon_poll(entered.begun);
    }

    /// Creates the state of a future that has not been polled.
    #[inline(always)]
    pub const fn new() -> Self {
        Self(backend::TaskWait::new())
    }

    /// Polls the future, whose name is `label` and, unless it is empty, `dynamic`.
    ///
    /// Cost: one relaxed load if no session records waits.
    #[inline(always)]
    pub fn poll<T>(
        &mut self,
        label: &str,
        dynamic: &str,
        poll: impl FnOnce() -> Poll<T>,
    ) -> Poll<T> {
        if !backend::are_waits_recorded() {
            return poll();
        }
        let begun = self.0.begin_poll(label, dynamic, 0);
        let mut guard = PollGuard {
            wait: &mut self.0,
            begun,
        };
        let polled = poll();
        if let Some(begun) = guard.begun.take() {
            guard.wait.end_poll(begun, polled.is_pending());
        }
        polled
    }
}
