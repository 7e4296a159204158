//! Limits of what a session keeps outside of the buffer.

use std::time::Duration;

use crate::types::time::TimeStamp;

/// Limits of one kind of data that a session keeps outside the buffer's chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeptLimits {
    /// Maximum size of all items, in bytes.
    pub(crate) max_bytes: u64,
    /// Maximum age of an item, in ns; `None` for no limit by age.
    max_age_ns: Option<u64>,
}

impl KeptLimits {
    /// Keeps nothing.
    pub(crate) const NOTHING: Self = Self {
        max_bytes: 0,
        max_age_ns: None,
    };

    /// Limits the items to `max_bytes`, and to the duration of their session if it has one.
    pub(crate) fn new(max_bytes: u64, duration: Option<Duration>) -> Self {
        let max_age_ns = duration.and_then(|duration| duration.as_nanos().try_into().ok());
        Self {
            max_bytes,
            max_age_ns,
        }
    }

    /// Returns whether an item that ended at `time` is older than the limit.
    pub(crate) fn is_too_old(&self, time: TimeStamp, now: TimeStamp) -> bool {
        self.max_age_ns
            .is_some_and(|max_age_ns| now.since_ns(time) > max_age_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn item_is_too_old_after_the_duration() {
        let limits = KeptLimits::new(1, Some(Duration::from_nanos(10)));
        let ended = TimeStamp(100);
        assert!(!limits.is_too_old(ended, TimeStamp(110)));
        assert!(limits.is_too_old(ended, TimeStamp(111)));
        let unlimited = KeptLimits::new(1, None);
        assert!(!unlimited.is_too_old(ended, TimeStamp(u64::MAX)));
    }
}
