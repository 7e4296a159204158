//! What is kept for as long as the buffer may hold something that speaks of it.

use std::collections::VecDeque;

/// Things that have ended, oldest first, each with the position that the buffer had reached then.
#[derive(Debug)]
pub(crate) struct WhileBuffered<T>(VecDeque<(u64, T)>);

impl<T> WhileBuffered<T> {
    pub(crate) const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// Keeps it until the buffer begins after `buffer_end`, where it ends now.
    pub(crate) fn keep(&mut self, buffer_end: u64, thing: T) {
        self.0.push_back((buffer_end, thing));
    }

    /// Takes out what ended before a buffer that begins there, to be dropped under no lock.
    #[must_use = "it is dropped where this ends"]
    pub(crate) fn take_expired(&mut self, buffer_start: u64) -> Vec<T> {
        let expired = self
            .0
            .iter()
            .take_while(|(end, _)| *end < buffer_start)
            .count();
        self.0.drain(..expired).map(|(_, thing)| thing).collect()
    }

    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(&T) -> bool) {
        self.0.retain(|(_, thing)| keeps(thing));
    }

    /// What a buffer that begins there may speak of.
    pub(crate) fn since(&self, buffer_start: u64) -> impl Iterator<Item = &T> {
        self.0
            .iter()
            .filter(move |(end, _)| *end >= buffer_start)
            .map(|(_, thing)| thing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_go_when_the_buffer_begins_after_their_end() {
        let mut kept = WhileBuffered::new();
        [(5, 'a'), (5, 'b'), (9, 'c')]
            .into_iter()
            .for_each(|(end, thing)| kept.keep(end, thing));
        let left = |kept: &WhileBuffered<char>| kept.since(0).collect::<String>();
        assert!(kept.take_expired(5).is_empty());
        assert_eq!(left(&kept), "abc");
        assert_eq!(kept.since(6).collect::<String>(), "c");
        assert_eq!(kept.take_expired(6), ['a', 'b']);
        assert_eq!(left(&kept), "c");
        kept.retain(|thing| *thing != 'c');
        assert_eq!(left(&kept), "");
    }
}
