//! The latest gaps between the sampler's ticks, which each chunk of samples repeats.
//!
//! A run of idle samples is written a minute or more after it begins. The chunk that was current at a gap
//! within the run may have been destroyed before the run is read, and the run would have rows in
//! the gap.

use std::collections::VecDeque;

use crate::buffer::{ChunkNumber, TickGap};

/// Maximum number of gaps: about 1 KiB in each chunk. If a program has more of them within a run,
/// the oldest ones are unknown in later chunks.
const MAX_GAPS: usize = 64;
/// Maximum age of a gap when another one begins, in ns: longer than any run, as long as the sampler can
/// look at every idle thread now and then.
const MAX_AGE_NS: u64 = 600_000_000_000;
/// Maximum length of the entry of a gap, in bytes.
const MAX_ENTRY_BYTES: usize = 32;

/// The latest gaps, in order of time.
#[derive(Debug, Default)]
pub(super) struct RecentGaps {
    gaps: VecDeque<TickGap>,
    /// The chunk that has all gaps except the latest ones, whose number is `unwritten`.
    written_in: Option<ChunkNumber>,
    unwritten: usize,
}

impl RecentGaps {
    /// Adds a gap, which no chunk has yet. Forgets gaps that are too old, and the oldest gap if
    /// there are too many.
    pub(super) fn add(&mut self, gap: TickGap) {
        // During the gap itself, no run was written.
        let earliest_ns = gap.before_ns.saturating_sub(MAX_AGE_NS);
        while self.gaps.len() == MAX_GAPS
            || (self.gaps.front()).is_some_and(|old| old.time_ns < earliest_ns)
        {
            self.gaps.pop_front();
        }
        // Without memory, the reader takes the ticks as even.
        if self.gaps.try_reserve(1).is_ok() {
            self.gaps.push_back(gap);
            self.unwritten += 1;
        }
    }

    /// Returns the gaps that the chunk does not have.
    pub(super) fn missing_in(&self, chunk: ChunkNumber) -> impl Iterator<Item = &TickGap> {
        let known = match self.written_in == Some(chunk) {
            true => self.gaps.len().saturating_sub(self.unwritten),
            false => 0,
        };
        self.gaps.range(known..)
    }

    /// Notes that the chunk has all gaps.
    pub(super) fn set_written(&mut self, chunk: ChunkNumber) {
        (self.written_in, self.unwritten) = (Some(chunk), 0);
    }

    /// Returns how many bytes all gaps take in a chunk, at most.
    pub(super) fn bytes(&self) -> usize {
        self.gaps.len() * MAX_ENTRY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(number: u64, time: u64) -> TickGap {
        TickGap {
            time_ns: time,
            before_ns: time - 1,
            tick: number,
        }
    }

    fn numbers(gaps: &RecentGaps) -> Vec<u64> {
        gaps.gaps.iter().map(|gap| gap.tick).collect()
    }

    #[test]
    fn old_gaps_are_forgotten() {
        let mut gaps = RecentGaps::default();
        (1..=200).for_each(|number| gaps.add(gap(number, number * 10)));
        assert_eq!(numbers(&gaps), (137..=200).collect::<Vec<_>>());
        // A gap of an hour does not age the others.
        let mut long = gap(201, 6 * MAX_AGE_NS);
        long.before_ns = 2001;
        gaps.add(long);
        assert_eq!(numbers(&gaps), (138..=201).collect::<Vec<_>>());
        gaps.add(gap(202, 7 * MAX_AGE_NS));
        assert_eq!(numbers(&gaps), [201, 202]);
    }

    #[test]
    fn chunk_gets_the_gaps_that_it_does_not_have() {
        let mut gaps = RecentGaps::default();
        let chunks = [ChunkNumber(1), ChunkNumber(2)];
        let missing = |gaps: &RecentGaps| {
            chunks.map(|chunk| gaps.missing_in(chunk).collect::<Vec<_>>().len())
        };
        gaps.add(gap(1, 10));
        assert_eq!(missing(&gaps), [1, 1]);
        gaps.set_written(chunks[0]);
        assert_eq!(missing(&gaps), [0, 1]);
        gaps.add(gap(2, 20));
        assert_eq!(missing(&gaps), [1, 2]);
        gaps.set_written(chunks[1]);
        assert_eq!(missing(&gaps), [2, 0]);
    }

    #[test]
    fn entry_is_no_longer_than_its_maximum() {
        let entry = gap(u64::MAX, u64::MAX).entry();
        assert!(entry.bytes().len() < MAX_ENTRY_BYTES);
    }
}
