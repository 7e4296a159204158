//! Finds the elements of a list by their content.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;
use hashbrown::HashTable;
use hashbrown::hash_table::{Entry, VacantEntry};

/// Positions of unique elements in a list that lies elsewhere, by the elements' hashes. Each
/// element takes 10 to 21 bytes here.
///
/// The seed of the hash is random, so an application that records texts of strangers cannot be made
/// slow by texts with equal hashes.
#[derive(Debug)]
pub(crate) struct UniqueIndex {
    slots: HashTable<Slot>,
    seed: SharedSeed,
}

/// The position of an element, and a part of its hash. The table grows without reading the
/// elements again, and compares an element only if that part is equal.
#[derive(Debug)]
struct Slot {
    hash: u32,
    position: u32,
}

impl Slot {
    /// Returns the hash for the table, which uses the lowest and the highest bits.
    fn spread(hash: u32) -> u64 {
        u64::from(hash) << 32 | u64::from(hash)
    }
}

impl Default for UniqueIndex {
    fn default() -> Self {
        // Std's hasher of nothing returns a number that depends on its random keys only.
        let random = RandomState::new().build_hasher().finish();
        Self {
            slots: HashTable::new(),
            seed: SharedSeed::from_u64(random),
        }
    }
}

/// The result of a search.
pub(crate) enum Search<'a> {
    /// The position of the element.
    Found(u32),
    /// The list lacks the element.
    Missing(FreeSlot<'a>),
}

/// The place for an element that the list lacks.
pub(crate) struct FreeSlot<'a> {
    slot: VacantEntry<'a, Slot>,
    hash: u32,
}

impl FreeSlot<'_> {
    /// Stores the position at which the caller puts the element.
    pub(crate) fn fill(self, position: u32) {
        let hash = self.hash;
        self.slot.insert(Slot { hash, position });
    }
}

impl UniqueIndex {
    /// Searches for an element. `is_at` returns whether the element at a position is equal to it.
    #[inline]
    pub(crate) fn search(
        &mut self,
        element: &(impl Hash + ?Sized),
        is_at: impl Fn(u32) -> bool,
    ) -> Search<'_> {
        let mut hasher = FoldHasher::with_seed(0, &self.seed);
        element.hash(&mut hasher);
        let hash = hasher.finish() as u32;
        self.reserve();
        let entry = self.slots.entry(
            Slot::spread(hash),
            |slot| slot.hash == hash && is_at(slot.position),
            |slot| Slot::spread(slot.hash),
        );
        match entry {
            Entry::Occupied(known) => Search::Found(known.get().position),
            Entry::Vacant(slot) => Search::Missing(FreeSlot { slot, hash }),
        }
    }

    /// Makes space for one more element. The table grows only here.
    #[inline]
    fn reserve(&mut self) {
        self.slots.reserve(1, |slot| Slot::spread(slot.hash));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds the number if the list lacks it. Returns its position.
    fn intern(index: &mut UniqueIndex, list: &mut Vec<u64>, number: u64) -> u32 {
        match index.search(&number, |at| list[at as usize] == number) {
            Search::Found(position) => position,
            Search::Missing(slot) => {
                list.push(number);
                slot.fill(list.len() as u32 - 1);
                list.len() as u32 - 1
            }
        }
    }

    #[test]
    fn each_element_has_one_position() {
        let (mut index, mut list) = (UniqueIndex::default(), Vec::new());
        for round in 0..2 {
            for number in 0..100_000 {
                let position = intern(&mut index, &mut list, number * number);
                assert_eq!(u64::from(position), number, "round {round}");
            }
        }
        assert_eq!(list.len(), 100_000);
    }

    #[test]
    fn elements_with_equal_hashes_are_distinct() {
        struct Same(u64);
        impl Hash for Same {
            fn hash<H: Hasher>(&self, _: &mut H) {}
        }
        let (mut index, mut list) = (UniqueIndex::default(), Vec::new());
        let mut intern =
            |number: u64| match index.search(&Same(number), |at| list[at as usize] == number) {
                Search::Found(position) => position,
                Search::Missing(slot) => {
                    list.push(number);
                    slot.fill(list.len() as u32 - 1);
                    list.len() as u32 - 1
                }
            };
        assert_eq!([7, 8, 7, 9, 8].map(&mut intern), [0, 1, 0, 2, 1]);
    }

    #[test]
    fn hash_depends_on_a_random_seed() {
        let hashes = [(); 3].map(|()| {
            let mut index = UniqueIndex::default();
            if let Search::Missing(slot) = index.search("text", |_| false) {
                slot.fill(0);
            }
            let slot = index.slots.iter().next();
            slot.map(|slot| slot.hash)
        });
        // Three equal hashes of 32 bits would be a coincidence of 1 in 2^64.
        assert!(
            hashes[0] != hashes[1] || hashes[0] != hashes[2],
            "{hashes:?}"
        );
    }
}
