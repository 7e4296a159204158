//! The state of a thread's event loop, as the application reports it: when the running event was
//! queued.
//!
//! Runs in the signal handler: [`EventDelay::state_in_handler`].
//!
//! The state is part of the thread's slot, so that each sample contains the state at its own time;
//! a thread without a slot has no such state. The state holds the time of queueing rather than a
//! delay, so it remains correct while the thread sleeps inside an event.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::types::TimeStamp;

/// Maximum nesting depth of events whose times are kept; deeper events count as queued at the time
/// of the last of these.
const MAX_NESTED: usize = 8;

/// State of a thread's event loop at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum EventLoopState {
    /// The thread has never reported an event.
    #[default]
    Unknown,
    /// No event runs: the loop waits, and a new event would run at once.
    Idle,
    /// An event runs that was queued at this time.
    Running(TimeStamp),
}

/// The events that a thread's loop runs, nested inside each other.
#[doc(alias = "mLastEventDelay")]
#[doc(alias = "mLastEventStart")]
#[derive(Debug)]
pub(crate) struct EventDelay {
    /// Number of running events plus 1; 0 before the first event. Written by the thread itself;
    /// read by its handler and by the sampler.
    level: AtomicU32,
    /// Times at which the running events were queued, in ns. Written and read like `level`.
    queued_ns: [AtomicU64; MAX_NESTED],
    /// Time up to which a jank was noticed, in ns. Written by the thread itself, and by the one that
    /// looks for janks.
    noticed_until_ns: AtomicU64,
}

impl EventDelay {
    pub(crate) const fn new() -> Self {
        Self {
            level: AtomicU32::new(0),
            queued_ns: [const { AtomicU64::new(0) }; MAX_NESTED],
            noticed_until_ns: AtomicU64::new(0),
        }
    }

    /// Clears the state for the next thread that owns the slot.
    pub(crate) fn reset(&self) {
        self.level.store(0, Ordering::Release);
    }

    /// Records that an event which was queued at this time begins to run. Returns its level, with
    /// which [`Self::end`] ends it. Called only on the thread itself.
    pub(crate) fn begin(&self, queued: TimeStamp) -> u32 {
        let level = self.level.load(Ordering::Relaxed).max(1);
        if let Some(queued_ns) = self.queued_ns.get(level as usize - 1) {
            queued_ns.store(queued.0, Ordering::Relaxed);
        }
        let level = level.saturating_add(1);
        // Stored after the time, because the handler may interrupt in between.
        self.level.store(level, Ordering::Release);
        level
    }

    /// Records that the event of this level, and all events nested in it, have ended. Does nothing
    /// if it has already ended. Called only on the thread itself.
    pub(crate) fn end(&self, level: u32) {
        if level > 1 && self.level.load(Ordering::Relaxed) >= level {
            self.level.store(level - 1, Ordering::Release);
        }
    }

    /// Returns how long the running event has kept others waiting, in ns, if that is longer than the
    /// limit and the jank was not returned before. An event that was queued before the end of a
    /// jank belongs to that jank.
    pub(crate) fn take_long_delay(
        &self,
        limit_ns: u64,
        now: impl Fn() -> TimeStamp,
    ) -> Option<u64> {
        // Before the state is read: an event that ends in between has lasted until then.
        let before = now();
        let EventLoopState::Running(queued) = self.state_in_handler() else {
            return None;
        };
        let delay_ns = before.since_ns(queued);
        let is_long = delay_ns > limit_ns;
        (is_long && self.noticed_until_ns.fetch_max(before.0, Ordering::AcqRel) < queued.0)
            .then_some(delay_ns)
    }

    /// Returns the state of the loop. It is exact on the loop's own thread, and on another thread
    /// while the loop's thread does not run.
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
    fn nested_event_hides_outer_event_until_it_ends() {
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
            "the registration of that level has ended"
        );
    }

    #[test]
    fn jank_is_taken_once() {
        let delay = EventDelay::new();
        let take = |now| delay.take_long_delay(10, || TimeStamp(now));
        let first = delay.begin(TimeStamp(100));
        assert_eq!((take(110), take(111), take(112)), (None, Some(11), None));
        delay.end(first);
        assert_eq!(take(200), None, "the loop waits");
        // This event waited behind the slow one.
        delay.begin(TimeStamp(105));
        assert_eq!(take(200), None);
        delay.begin(TimeStamp(201));
        assert_eq!(take(212), Some(11));
    }

    #[test]
    fn events_ended_out_of_order_leave_loop_idle() {
        let delay = EventDelay::new();
        let (first, second) = (delay.begin(TimeStamp(1)), delay.begin(TimeStamp(2)));
        delay.end(first);
        assert_eq!(delay.state_in_handler(), EventLoopState::Idle);
        let (third, fourth) = (delay.begin(TimeStamp(3)), delay.begin(TimeStamp(4)));
        // The fourth event has the level that the second one had.
        delay.end(second);
        assert_eq!(delay.state_in_handler(), running(3));
        delay.end(fourth);
        assert_eq!(delay.state_in_handler(), running(3));
        delay.end(third);
        assert_eq!(delay.state_in_handler(), EventLoopState::Idle);
    }

    #[test]
    fn events_nested_beyond_maximum_are_counted() {
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
