//! The state of a wrapped future.

#[cfg(test)]
use std::cell::Cell;

use crate::labels::{ContextWords, current_context};
use crate::platform::monotonic_now;
use crate::types::TimeStamp;
use crate::waiting_tasks::chain::{
    EndedPoll, Poll, add_pending, innermost, next_number, push, remove, remove_pending,
};
use crate::waiting_tasks::recorded_waits::{end_wait, session, with_waits};
use crate::waiting_tasks::waits::TaskName;

/// Returns whether a session records waits. A caller that gets `false` need not call
/// [`TaskWait::begin_poll`]: one relaxed load.
#[inline(always)]
pub(crate) fn are_waits_recorded() -> bool {
    session() != 0
}

#[cfg(test)]
thread_local! {
    static TEST_TIME: Cell<Option<TimeStamp>> = const { Cell::new(None) };
}

fn now() -> TimeStamp {
    #[cfg(test)]
    if let Some(time) = TEST_TIME.get() {
        return time;
    }
    monotonic_now()
}

/// A poll that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BegunPoll {
    session: u32,
    number: u64,
}

/// What a wrapped future keeps from poll to poll.
#[derive(Debug, Default)]
pub(crate) struct TaskWait {
    /// The session that the other fields belong to; 0 for none.
    session: u32,
    /// The future's stack, and that of the future around it.
    stack: u32,
    below: u32,
    /// Number of polls in progress. Several threads may be in a span at the same time.
    polls: u32,
    /// The place of the wait plus one; 0 if the future does not wait, or a future inside of it
    /// does.
    place: u32,
    /// The poll of the future around it that left it pending; 0 if it is not pending.
    pending_in: u64,
}

impl TaskWait {
    pub(crate) const fn new() -> Self {
        Self {
            session: 0,
            stack: 0,
            below: 0,
            polls: 0,
            place: 0,
            pending_in: 0,
        }
    }

    /// Begins a poll of the future: ends its wait, and makes the poll the thread's innermost one.
    /// `name` is a label and a text that was made at run time; without a name, the future has the
    /// stack of the future around it. `span` is the id of the span whose future it is; 0 for a
    /// future without a span.
    ///
    /// Returns `None` if the poll is not recorded: no session records waits, the innermost poll is
    /// of the same span, too many polls are in progress, or the thread is inside the profiler's own
    /// work.
    pub(crate) fn begin_poll(
        &mut self,
        name: Option<(&str, &str)>,
        span: u64,
    ) -> Option<BegunPoll> {
        let session = session();
        let around = innermost();
        // A thread may enter a span twice, and two layers are notified of each entry.
        if session == 0 || span != 0 && around.span == span && around.session == session {
            return None;
        }
        if self.session != session {
            *self = Self {
                session,
                ..Self::new()
            };
        }
        self.end();
        let below = match around.session == session {
            true => around.stack,
            false => 0,
        };
        if self.stack == 0 || self.below != below {
            self.stack = match name {
                Some((label, dynamic)) => {
                    let name = TaskName { label, dynamic };
                    with_waits(session, |waits| waits.stacks.number(below, name))?
                }
                None => below,
            };
            self.below = below;
        }
        let number = next_number();
        let is_pushed = push(Poll {
            session,
            stack: self.stack,
            number,
            pending: 0,
            span,
        });
        is_pushed.then(|| {
            self.polls += 1;
            BegunPoll { session, number }
        })
    }

    /// Ends a poll of a future. If the future is pending, and none of those inside of it is, its
    /// wait begins. `unnamed` is the name of the wait if neither the future nor one around it has a
    /// name.
    pub(crate) fn end_poll(&mut self, begun: BegunPoll, is_pending: bool, unnamed: &str) {
        let own = remove(begun.number).filter(|_| is_pending);
        self.end_of_poll(begun, own, unnamed, current_context);
    }

    /// Ends a poll of a span's future, like [`Self::end_poll`]. The thread may still be in spans
    /// that it has entered since. `context` is that of the span.
    pub(crate) fn exit_span(&mut self, begun: BegunPoll, context: ContextWords) {
        let own = remove(begun.number);
        self.end_of_poll(begun, own, "", || context);
    }

    /// Ends a poll after which the future's state is unknown: the poll has panicked, or the span's
    /// exit will not be noticed.
    pub(crate) fn abandon_poll(&mut self, begun: BegunPoll) {
        remove(begun.number);
        self.end_of_poll(begun, None, "", || ContextWords::NONE);
    }

    fn end_of_poll(
        &mut self,
        begun: BegunPoll,
        pending: Option<EndedPoll>,
        unnamed: &str,
        context: impl FnOnce() -> ContextWords,
    ) {
        if begun.session != self.session || begun.session != session() {
            return;
        }
        self.polls = self.polls.saturating_sub(1);
        let Some(EndedPoll { poll: own, around }) = pending.filter(|_| self.polls == 0) else {
            return;
        };
        self.end();
        if own.pending == 0 {
            let (begin, context) = (now(), context());
            let place = with_waits(own.session, |waits| {
                let name = TaskName {
                    label: unnamed,
                    dynamic: "",
                };
                let stack = match own.stack {
                    0 => waits.stacks.number(0, name),
                    stack => stack,
                };
                waits.begin(stack, begin, context)
            });
            let Some(place) = place else {
                // The profiler's own work polls the future: the one around it waits.
                return;
            };
            self.place = place;
        }
        if around != 0 && add_pending(around, own.session) {
            self.pending_in = around;
        }
    }

    /// Ends the future's wait, if it waits.
    fn end(&mut self) {
        let pending_in = std::mem::take(&mut self.pending_in);
        if pending_in != 0 {
            remove_pending(pending_in);
        }
        let place = std::mem::take(&mut self.place);
        if place != 0 && self.session == session() {
            end_wait(self.session, place, now());
        }
    }
}

impl Drop for TaskWait {
    #[inline]
    fn drop(&mut self) {
        if self.place != 0 || self.pending_in != 0 {
            self.end();
        }
    }
}

#[cfg(test)]
#[path = "task_wait_tests.rs"]
mod tests;
