//! What a thread's event loop does, as the host reports it: since when the event that runs was waited for.
//!
//! Runs in the signal handler: [`EventDelay::state_in_handler`].
//!
//! It stands in the thread's slot, so that a sample has what was true at its own moment; a thread without a slot has none. A
//! number is kept and no duration, so a thread that sleeps within an event needs nobody to count for it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::base::TimeStamp;

/// Of events within events, so many are told apart; those that are deeper count as the last of them.
const MAX_NESTED: usize = 8;

/// What a thread's event loop does at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum EventLoopState {
    /// The thread has never reported an event.
    #[default]
    Unknown,
    /// No event runs: the loop waits, and whatever came would run at once.
    Idle,
    /// An event runs that was queued then.
    Running(TimeStamp),
}

/// The events that a thread's loop runs, one within the other.
#[doc(alias = "mLastEventDelay")]
#[doc(alias = "mLastEventStart")]
#[derive(Debug)]
pub(crate) struct EventDelay {
    /// Written by the own thread, read by its handler and by the sampler: 0 when there was never an event, else one more
    /// than there are.
    level: AtomicU32,
    /// The same, for those below `level`: when each was queued.
    queued_ns: [AtomicU64; MAX_NESTED],
}

impl EventDelay {
    pub(super) const fn new() -> Self {
        Self {
            level: AtomicU32::new(0),
            queued_ns: [const { AtomicU64::new(0) }; MAX_NESTED],
        }
    }

    /// Another thread's, which has reported nothing.
    pub(super) fn reset(&self) {
        self.level.store(0, Ordering::Release);
    }

    /// On the own thread: an event begins to run that was queued then. Gives its level, to end it by.
    pub(crate) fn begin(&self, queued: TimeStamp) -> u32 {
        let level = self.level.load(Ordering::Relaxed).max(1);
        if let Some(place) = self.queued_ns.get(level as usize - 1) {
            place.store(queued.0, Ordering::Relaxed);
        }
        let level = level.saturating_add(1);
        // After the time, also for the handler, which may come in between.
        self.level.store(level, Ordering::Release);
        level
    }

    /// On the own thread: the event of this level has ended, and what began within it. Nothing if it has before.
    pub(crate) fn end(&self, level: u32) {
        if level > 1 && self.level.load(Ordering::Relaxed) >= level {
            self.level.store(level - 1, Ordering::Release);
        }
    }

    /// What the loop does: on the own thread, or from outside while that does not run.
    pub(crate) fn state_in_handler(&self) -> EventLoopState {
        let running = match self.level.load(Ordering::Acquire) {
            0 => return EventLoopState::Unknown,
            1 => return EventLoopState::Idle,
            level => (level as usize - 1).min(MAX_NESTED),
        };
        match self.queued_ns.get(running - 1) {
            Some(queued_ns) => {
                EventLoopState::Running(TimeStamp(queued_ns.load(Ordering::Relaxed)))
            }
            None => EventLoopState::Idle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(ns: u64) -> EventLoopState {
        EventLoopState::Running(TimeStamp(ns))
    }

    #[test]
    fn an_inner_event_counts_while_it_runs_and_then_the_outer_again() {
        let delay = EventDelay::new();
        assert_eq!(delay.state_in_handler(), EventLoopState::Unknown);
        let outer = delay.begin(TimeStamp(5));
        assert_eq!(delay.state_in_handler(), running(5));
        let inner = delay.begin(TimeStamp(9));
        assert_eq!(delay.state_in_handler(), running(9));
        delay.end(inner);
        assert_eq!(delay.state_in_handler(), running(5));
        delay.end(outer);
        assert_eq!(delay.state_in_handler(), EventLoopState::Idle);
        delay.reset();
        assert_eq!(delay.state_in_handler(), EventLoopState::Unknown);
        delay.end(outer);
        assert_eq!(
            delay.state_in_handler(),
            EventLoopState::Unknown,
            "of a registration that has ended"
        );
    }

    #[test]
    fn events_that_end_out_of_order_leave_none_behind() {
        let delay = EventDelay::new();
        let (first, second) = (delay.begin(TimeStamp(1)), delay.begin(TimeStamp(2)));
        delay.end(first);
        assert_eq!(delay.state_in_handler(), EventLoopState::Idle);
        let (third, fourth) = (delay.begin(TimeStamp(3)), delay.begin(TimeStamp(4)));
        // It stands for the fourth, which is where it was.
        delay.end(second);
        assert_eq!(delay.state_in_handler(), running(3));
        delay.end(fourth);
        assert_eq!(delay.state_in_handler(), running(3));
        delay.end(third);
        assert_eq!(delay.state_in_handler(), EventLoopState::Idle);
    }

    #[test]
    fn events_that_are_nested_too_deep_are_counted_all_the_same() {
        let delay = EventDelay::new();
        let levels: Vec<u32> = (1..=20).map(|ns| delay.begin(TimeStamp(ns))).collect();
        assert_eq!(delay.state_in_handler(), running(MAX_NESTED as u64));
        for (nested, &level) in levels.iter().enumerate().rev() {
            delay.end(level);
            let left = nested.min(MAX_NESTED) as u64;
            let expected = if left == 0 {
                EventLoopState::Idle
            } else {
                running(left)
            };
            assert_eq!(delay.state_in_handler(), expected);
        }
    }
}
