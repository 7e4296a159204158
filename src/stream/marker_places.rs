//! Where a thread's markers are, in a few bytes each.

use crate::buffer::{BlockIndex, EntryReader, EntryWriter};

/// Blocks of markers, in the order of the last moments that they tell of.
#[derive(Debug, Default)]
pub(super) struct MarkerPlaces {
    /// Of each the distances of time and position from those of the one before.
    coded: EntryWriter,
    last: (u64, u64),
    count: usize,
    is_unsorted: bool,
}

impl MarkerPlaces {
    pub(super) fn push(&mut self, last_ns: u64, block: BlockIndex) {
        let (before_ns, before) = self.last;
        let place = (last_ns, block.get());
        self.is_unsorted |= place < self.last;
        self.coded
            .signed(last_ns.wrapping_sub(before_ns) as i64)
            .signed(block.get().wrapping_sub(before) as i64);
        self.last = place;
        self.count += 1;
    }

    /// Puts them in their order, in which most are already, as they were put.
    pub(super) fn sort(&mut self) {
        if !self.is_unsorted {
            return;
        }
        let mut places: Vec<(u64, BlockIndex)> = self.places().collect();
        places.sort_unstable();
        *self = Self::default();
        places
            .into_iter()
            .for_each(|(last_ns, block)| self.push(last_ns, block));
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = BlockIndex> {
        self.places().map(|(_, block)| block)
    }

    fn places(&self) -> impl Iterator<Item = (u64, BlockIndex)> {
        let mut coded = EntryReader::new(self.coded.bytes());
        let (mut last_ns, mut position) = (0u64, 0u64);
        std::iter::from_fn(move || {
            last_ns = last_ns.wrapping_add(coded.signed()? as u64);
            position = position.wrapping_add(coded.signed()? as u64);
            Some((last_ns, BlockIndex::new(position)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_come_in_the_order_of_their_times_and_else_of_their_places() {
        let mut places = MarkerPlaces::default();
        let given = [
            (50, 100),
            (70, 140),
            (60, 9000),
            (70, 120),
            (u64::MAX, u64::MAX),
            (0, 1),
        ];
        for (last_ns, position) in given {
            places.push(last_ns, BlockIndex::new(position).expect("not 0"));
        }
        let blocks =
            |places: &MarkerPlaces| places.blocks().map(BlockIndex::get).collect::<Vec<_>>();
        assert_eq!(
            (blocks(&places), places.len()),
            (given.map(|(_, position)| position).to_vec(), 6)
        );
        places.sort();
        assert_eq!(
            (blocks(&places), places.len()),
            (vec![1, 100, 9000, 120, 140, u64::MAX], 6)
        );
        places.sort();
        assert_eq!(blocks(&places)[0], 1);
    }
}
