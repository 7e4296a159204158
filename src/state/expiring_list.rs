//! Items that are kept while the buffer may hold data that refers to them.

use std::collections::VecDeque;

/// Items that have ended, oldest first, each with the end position of the buffer at that time.
#[derive(Debug)]
pub(crate) struct ExpiringList<T>(VecDeque<(u64, T)>);

impl<T> ExpiringList<T> {
    pub(crate) const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// Adds an item that ended now, when the buffer ends at `buffer_end`. The item expires when the
    /// buffer starts after that position.
    pub(crate) fn keep(&mut self, buffer_end: u64, item: T) {
        self.0.push_back((buffer_end, item));
    }

    /// Removes and returns the items that ended before `buffer_start`. The caller drops them
    /// without holding a lock.
    #[must_use = "drop the items without holding a lock"]
    pub(crate) fn take_expired(&mut self, buffer_start: u64) -> Vec<T> {
        let expired = self
            .0
            .iter()
            .take_while(|(end, _)| *end < buffer_start)
            .count();
        self.0.drain(..expired).map(|(_, item)| item).collect()
    }

    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(&T) -> bool) {
        self.0.retain(|(_, item)| keeps(item));
    }

    /// Returns the items that data from `buffer_start` on may refer to.
    pub(crate) fn since(&self, buffer_start: u64) -> impl Iterator<Item = &T> {
        self.0
            .iter()
            .filter(move |(end, _)| *end >= buffer_start)
            .map(|(_, item)| item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_expire_when_the_buffer_starts_after_their_end() {
        let mut kept = ExpiringList::new();
        [(5, 'a'), (5, 'b'), (9, 'c')]
            .into_iter()
            .for_each(|(end, item)| kept.keep(end, item));
        let left = |kept: &ExpiringList<char>| kept.since(0).collect::<String>();
        assert!(kept.take_expired(5).is_empty());
        assert_eq!(left(&kept), "abc");
        assert_eq!(kept.since(6).collect::<String>(), "c");
        assert_eq!(kept.take_expired(6), ['a', 'b']);
        assert_eq!(left(&kept), "c");
        kept.retain(|item| *item != 'c');
        assert_eq!(left(&kept), "");
    }
}
