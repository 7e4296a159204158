//! What a wrapped future keeps, so that a session can record where it waits.

use std::task::Poll;

use crate::api::backend;
use crate::types::ContextWords;

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
#[derive(Clone, Copy, Debug)]
pub(crate) struct EnteredWait(backend::BegunPoll);

/// Returns whether a session records waits: one relaxed load.
#[inline(always)]
pub(crate) fn records_waits() -> bool {
    backend::are_waits_recorded()
}

impl TaskWait {
    /// Ends the wait of a span that the thread enters. Returns `None` if the entry is not recorded.
    pub(crate) fn enter(&mut self, name: &str, span: u64) -> Option<EnteredWait> {
        self.0.begin_poll(Some((name, "")), span).map(EnteredWait)
    }

    /// Begins the wait of a span that the thread exits, unless another thread is in the span.
    /// `context` is that of the span.
    pub(crate) fn exit(&mut self, entered: EnteredWait, context: ContextWords) {
        self.0.exit_span(entered.0, context);
    }

    /// Ends an entry whose exit will not be noticed.
    pub(crate) fn abandon(&mut self, entered: EnteredWait) {
        self.0.abandon_poll(entered.0);
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
        self.poll_as(Some((label, dynamic)), "", poll)
    }

    /// Polls a future without a name. `unnamed` is the name of its wait if no future around it or
    /// inside of it has one.
    #[inline(always)]
    pub(crate) fn poll_unnamed<T>(
        &mut self,
        unnamed: &str,
        poll: impl FnOnce() -> Poll<T>,
    ) -> Poll<T> {
        self.poll_as(None, unnamed, poll)
    }

    #[inline(always)]
    fn poll_as<T>(
        &mut self,
        name: Option<(&str, &str)>,
        unnamed: &str,
        poll: impl FnOnce() -> Poll<T>,
    ) -> Poll<T> {
        if !backend::are_waits_recorded() {
            return poll();
        }
        let begun = self.0.begin_poll(name, 0);
        let mut guard = PollGuard {
            wait: &mut self.0,
            begun,
        };
        let polled = poll();
        if let Some(begun) = guard.begun.take() {
            guard.wait.end_poll(begun, polled.is_pending(), unnamed);
        }
        polled
    }
}
