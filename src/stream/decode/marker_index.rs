//! The positions of a thread's markers, in a few bytes each.

use crate::buffer::{BlockIndex, EntryReader, EntryWriter};

/// The positions of markers in the buffer. After [`Self::sort`], they are ordered by the latest
/// time of each marker.
#[derive(Debug, Default)]
pub(crate) struct MarkerIndex {
    /// For each marker, the differences of time and position from the previous marker.
    encoded: EntryWriter,
    last: (u64, u64),
    count: usize,
    is_unsorted: bool,
}

impl MarkerIndex {
    pub(crate) fn push(&mut self, last_ns: u64, block: BlockIndex) {
        let (before_ns, before) = self.last;
        let marker = (last_ns, block.get());
        self.is_unsorted |= marker < self.last;
        self.encoded
            .signed(last_ns.wrapping_sub(before_ns) as i64)
            .signed(block.get().wrapping_sub(before) as i64);
        self.last = marker;
        self.count += 1;
    }

    /// Sorts the markers. Most markers are already in order when they are pushed.
    pub(crate) fn sort(&mut self) {
        if !self.is_unsorted {
            return;
        }
        let mut markers: Vec<(u64, BlockIndex)> = self.markers().collect();
        markers.sort_unstable();
        *self = Self::default();
        markers
            .into_iter()
            .for_each(|(last_ns, block)| self.push(last_ns, block));
    }

    /// Returns how much memory the index takes if it doubles.
    pub(super) fn growth_bytes(&self) -> usize {
        2 * self.encoded.bytes().len()
    }

    /// Returns how much memory [`Self::sort`] takes: the decoded markers, and a new index that
    /// grows.
    pub(super) fn sorting_bytes(&self) -> usize {
        match self.is_unsorted {
            true => self.count * size_of::<(u64, BlockIndex)>() + 2 * self.growth_bytes(),
            false => 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = BlockIndex> {
        self.markers().map(|(_, block)| block)
    }

    fn markers(&self) -> impl Iterator<Item = (u64, BlockIndex)> {
        let mut encoded = EntryReader::new(self.encoded.bytes());
        let (mut last_ns, mut position) = (0u64, 0u64);
        std::iter::from_fn(move || {
            last_ns = last_ns.wrapping_add(encoded.signed()? as u64);
            position = position.wrapping_add(encoded.signed()? as u64);
            Some((last_ns, BlockIndex::new(position)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sort_orders_markers_by_time_then_position() {
        let mut markers = MarkerIndex::default();
        let given = [
            (50, 100),
            (70, 140),
            (60, 9000),
            (70, 120),
            (u64::MAX, u64::MAX),
            (0, 1),
        ];
        for (last_ns, position) in given {
            markers.push(last_ns, BlockIndex::new(position).expect("not 0"));
        }
        let blocks =
            |markers: &MarkerIndex| markers.blocks().map(BlockIndex::get).collect::<Vec<_>>();
        assert_eq!(
            (blocks(&markers), markers.len()),
            (given.map(|(_, position)| position).to_vec(), 6)
        );
        markers.sort();
        assert_eq!(
            (blocks(&markers), markers.len()),
            (vec![1, 100, 9000, 120, 140, u64::MAX], 6)
        );
        markers.sort();
        assert_eq!(blocks(&markers)[0], 1);
    }
}
