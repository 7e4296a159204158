//! Items that are kept while the buffer may hold data that refers to them, within limits.
//!
//! Each kind of data has a share of the session's capacity, so that one kind does not push out another.
//! All kinds count towards the capacity, so they leave less of it to the buffer's chunks. Together they
//! leave the chunks at least three eighths of the capacity.

use std::collections::VecDeque;

use crate::types::{KeptLimits, TimeStamp};

/// Memory that a kept item takes in addition to its own size, in bytes: its place in the list, and
/// the allocator's overhead.
pub(crate) const OVERHEAD_BYTES: u64 = 64;

/// Items that have ended, oldest first.
#[derive(Debug)]
pub(crate) struct ExpiringList<T> {
    items: VecDeque<Ended<T>>,
    /// Size of all items, in bytes.
    bytes: u64,
    pub(crate) limits: KeptLimits,
}

#[derive(Debug)]
struct Ended<T> {
    item: T,
    bytes: u64,
    /// End position of the buffer when the item ended.
    buffer_end: u64,
    at: TimeStamp,
}

impl<T> ExpiringList<T> {
    pub(crate) const fn new(limits: KeptLimits) -> Self {
        Self {
            items: VecDeque::new(),
            bytes: 0,
            limits,
        }
    }

    /// Returns the size of all items, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds an item of `bytes` that ended at `now`, when the buffer ends at `buffer_end`. The item
    /// expires when the buffer starts after that position, or when it is too old. Removes and
    /// returns the oldest items while all items exceed the limit. The caller counts them as lost,
    /// and drops them without holding a lock.
    #[must_use = "count the items as lost"]
    pub(crate) fn keep(&mut self, item: T, bytes: u64, buffer_end: u64, now: TimeStamp) -> Vec<T> {
        let bytes = bytes + OVERHEAD_BYTES;
        self.bytes += bytes;
        self.items.push_back(Ended {
            item,
            bytes,
            buffer_end,
            at: now,
        });
        let mut lost = Vec::new();
        while self.bytes > self.limits.max_bytes {
            lost.extend(self.take_oldest());
        }
        lost
    }

    fn take_oldest(&mut self) -> Option<T> {
        let oldest = self.items.pop_front()?;
        self.bytes -= oldest.bytes;
        Some(oldest.item)
    }

    fn is_expired(&self, ended: &Ended<T>, buffer_start: u64, now: TimeStamp) -> bool {
        ended.buffer_end < buffer_start || self.limits.is_too_old(ended.at, now)
    }

    /// Removes and returns the items that ended before `buffer_start`, or are too old at `now`.
    /// Keeps the items that it has no memory to return. The caller drops the returned items without
    /// holding a lock.
    #[must_use = "drop the items without holding a lock"]
    pub(crate) fn take_expired(&mut self, buffer_start: u64, now: TimeStamp) -> Vec<T> {
        let mut expired = Vec::new();
        while let Some(oldest) = self.items.front()
            && self.is_expired(oldest, buffer_start, now)
            && expired.try_reserve(1).is_ok()
        {
            expired.extend(self.take_oldest());
        }
        expired
    }

    /// Removes and returns all items. The caller drops them without holding a lock.
    #[must_use = "drop the items without holding a lock"]
    pub(crate) fn take_all(&mut self) -> Vec<T> {
        self.bytes = 0;
        self.items.drain(..).map(|ended| ended.item).collect()
    }

    /// Returns the items that are not too old at `now`, and that data from `buffer_start` on may
    /// refer to.
    pub(crate) fn since(&self, buffer_start: u64, now: TimeStamp) -> impl Iterator<Item = &T> {
        self.items
            .iter()
            .filter(move |ended| !self.is_expired(ended, buffer_start, now))
            .map(|ended| &ended.item)
    }
}

/// A kind of data that a session keeps outside the buffer's chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeptKind {
    /// The data of threads that have ended.
    EndedThreads,
    /// The profiles of child processes that have exited.
    ExitProfiles,
    /// The pages that were unregistered.
    EndedPages,
    /// The generated code that was unregistered.
    UnregisteredCode,
    /// The generated code that `/tmp/perf-PID.map` lists.
    PerfMap,
}

impl KeptKind {
    /// Returns the number by which the capacity is divided to get the share.
    pub(in crate::state) const fn divisor(self) -> u64 {
        match self {
            Self::ExitProfiles => 4,
            Self::EndedThreads | Self::PerfMap => 8,
            Self::EndedPages | Self::UnregisteredCode => 16,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: TimeStamp = TimeStamp(100);

    fn kept(limits: KeptLimits) -> ExpiringList<char> {
        let mut kept = ExpiringList::new(limits);
        for (end, at, item) in [(5, 80, 'a'), (5, 90, 'b'), (9, 100, 'c')] {
            assert!(kept.keep(item, 36, end, TimeStamp(at)).is_empty());
        }
        kept
    }

    fn left(kept: &ExpiringList<char>) -> String {
        kept.since(0, NOW).collect()
    }

    #[test]
    fn items_expire_when_the_buffer_starts_after_their_end() {
        let mut kept = kept(KeptLimits::new(1000, None));
        assert!(kept.take_expired(5, NOW).is_empty());
        assert_eq!((left(&kept).as_str(), kept.bytes()), ("abc", 300));
        assert_eq!(kept.since(6, NOW).collect::<String>(), "c");
        assert_eq!(kept.take_expired(6, NOW), ['a', 'b']);
        assert_eq!((left(&kept).as_str(), kept.bytes()), ("c", 100));
        assert_eq!(kept.take_all(), ['c']);
        assert_eq!((left(&kept).as_str(), kept.bytes()), ("", 0));
    }

    #[test]
    fn items_expire_after_the_duration() {
        let mut kept = kept(KeptLimits::new(1000, Some(Duration::from_nanos(10))));
        assert_eq!(left(&kept), "bc");
        assert_eq!(kept.take_expired(0, NOW), ['a']);
        assert_eq!(kept.take_expired(0, TimeStamp(111)), ['b', 'c']);
    }

    #[test]
    fn oldest_items_are_lost_when_all_exceed_the_limit() {
        let mut kept = kept(KeptLimits::new(300, None));
        assert_eq!(kept.keep('d', 136, 9, NOW), ['a', 'b']);
        assert_eq!((left(&kept).as_str(), kept.bytes()), ("cd", 300));
        assert_eq!(kept.keep('e', 300, 9, NOW), ['c', 'd', 'e']);
        assert_eq!(kept.bytes(), 0);
    }
}
