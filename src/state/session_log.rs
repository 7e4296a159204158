//! The events of a session that explain its profile, for `profilingLog`.

use std::borrow::Cow;
use std::collections::VecDeque;

use crate::platform::monotonic_now;
use crate::types::TimeStamp;
use crate::util::{LockRank, NamedMutex};

/// Maximum number of events. Beyond it, the oldest event is dropped, and `dropped` counts it.
const MAX_EVENTS: usize = 256;

/// The newest events of a session.
#[doc(alias = "ProfilingLog")]
#[derive(Debug)]
pub(crate) struct SessionLog(NamedMutex<LoggedEvents>);

/// Events with their times, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoggedEvents {
    pub(crate) events: VecDeque<(TimeStamp, Cow<'static, str>)>,
    /// Number of older events that were dropped.
    pub(crate) dropped: u64,
}

impl SessionLog {
    pub(crate) fn new() -> Self {
        let events = LoggedEvents::default();
        Self(NamedMutex::new(
            "session log",
            LockRank::SessionData,
            events,
        ))
    }

    /// Adds an event at the current time.
    #[doc(alias = "Access")]
    pub(crate) fn add(&self, event: impl Into<Cow<'static, str>>) {
        let event = event.into();
        let mut log = self.0.lock();
        if log.events.len() == MAX_EVENTS {
            log.events.pop_front();
            log.dropped += 1;
        }
        log.events.push_back((monotonic_now(), event));
    }

    /// Returns a copy of the events.
    pub(crate) fn all(&self) -> LoggedEvents {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_keeps_the_newest_events_in_order() {
        let log = SessionLog::new();
        log.add("first");
        for _ in 0..MAX_EVENTS {
            log.add("later");
        }
        let LoggedEvents { events, dropped } = log.all();
        assert_eq!((events.len(), dropped), (MAX_EVENTS, 1));
        assert!(events.iter().all(|(_, event)| event == "later"));
        assert!(events.iter().is_sorted_by_key(|(time, _)| *time));
    }
}
