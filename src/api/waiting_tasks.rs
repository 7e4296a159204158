//! What a wrapped future keeps, so that a session can record where it waits.

use std::task::Poll;

use crate::api::backend;

/// Records where a wrapped future waits, with the feature
/// [`WAITING_TASKS`](crate::Features::WAITING_TASKS). Ends the wait when it is dropped.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct TaskWait(backend::TaskWait);

/// Puts the poll around back as the thread's innermost one, also if the poll panics.
struct PollGuard<'a> {
    wait: &'a mut backend::TaskWait,
    before: Option<backend::PollsInProgress>,
}

impl Drop for PollGuard<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            backend::TaskWait::abandon_poll(before);
        }
    }
}

/// What the thread polled when it entered a span.
#[cfg(feature = "tracing")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct EnteredWait(backend::PollsInProgress);

/// Returns whether a session records waits: one relaxed load.
#[cfg(feature = "tracing")]
#[inline(always)]
pub(crate) fn records_waits() -> bool {
    backend::are_waits_recorded()
}

impl TaskWait {
    /// Ends the wait of a span that the thread enters. Returns `None` if no session records waits.
    #[cfg(feature = "tracing")]
    pub(crate) fn enter(&mut self, name: &str) -> Option<EnteredWait> {
        self.0.begin_poll(name, "").map(EnteredWait)
    }

    /// Begins the wait of a span that the thread exits.
    #[cfg(feature = "tracing")]
    pub(crate) fn exit(&mut self, entered: EnteredWait) {
        self.0.end_poll(entered.0, true);
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
        let before = self.0.begin_poll(label, dynamic);
        let mut guard = PollGuard {
            wait: &mut self.0,
            before,
        };
        let polled = poll();
        if let Some(before) = guard.before.take() {
            guard.wait.end_poll(before, polled.is_pending());
        }
        polled
    }
}
