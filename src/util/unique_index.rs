//! Finds the elements of a list by their content, and a table of unique texts.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;

use crate::util::memory::try_vec;

/// The texts, one after another, in the order in which they were first added.
#[derive(Debug, Default)]
pub(crate) struct TextTable {
    index: UniqueIndex,
    texts: Texts,
}

#[derive(Debug, Default)]
struct Texts {
    joined: String,
    /// The end of each text in `joined`.
    ends: Vec<usize>,
}

impl Texts {
    fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |last| self.ends[last]);
        Some(&self.joined[start..end])
    }

    fn push(&mut self, text: &str) {
        self.joined.push_str(text);
        self.ends.push(self.joined.len());
    }
}

impl TextTable {
    /// Returns the number of a text, and adds the text if it is new. Equal texts have the same
    /// number.
    pub(crate) fn intern(&mut self, text: &str) -> u32 {
        let Self { index, texts } = self;
        match index.search(text, |at| texts.get(at as usize) == Some(text)) {
            Search::Found(number) => number,
            Search::Missing(slot) => {
                let number = texts.ends.len() as u32;
                texts.push(text);
                slot.fill(number);
                number
            }
        }
    }

    /// Returns how much memory the table takes if it doubles.
    pub(crate) fn growth_bytes(&self) -> usize {
        /// The end of a text, and its place in the index.
        const PLACE_BYTES: usize = 40;
        2 * self.texts.joined.len() + PLACE_BYTES * self.texts.ends.len()
    }

    /// Returns the text with this number, or an empty text for an unknown number.
    pub(crate) fn get(&self, index: u32) -> &str {
        self.texts.get(index as usize).unwrap_or_default()
    }
}

/// Number of slots of the first table.
const FIRST_SLOTS: usize = 16;

/// An index of a list of unique elements: finds an element's position by its content. The index
/// takes 11 to 22 bytes for each element.
///
/// A hash table with linear probing: an element is in the slot that its hash selects, or in the
/// first free one after it. Most searches read one cache line of the table. std's map would also
/// hold each element.
///
/// The seed of the hash is random. So strangers whose texts the application records cannot choose
/// texts with equal hashes, which would slow the search down.
#[derive(Debug)]
pub(crate) struct UniqueIndex {
    /// The table. More than a quarter of its slots are free.
    slots: Vec<Slot>,
    used: usize,
    seed: SharedSeed,
}

/// A part of an element's hash, and the element's position plus one; 0 if the slot is free. With
/// the hash, the table grows without reading the elements, and seldom compares two different
/// elements.
#[derive(Clone, Copy, Default, Debug)]
struct Slot {
    hash: u32,
    next_position: u32,
}

impl Default for UniqueIndex {
    fn default() -> Self {
        // The hash of an empty input depends only on std's random keys.
        let random = RandomState::new().build_hasher().finish();
        Self {
            slots: Vec::new(),
            used: 0,
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

/// The slot for an element that the list lacks.
pub(crate) struct FreeSlot<'a> {
    index: &'a mut UniqueIndex,
    slot: usize,
    hash: u32,
}

impl FreeSlot<'_> {
    /// Stores the position at which the caller puts the element.
    #[inline]
    pub(crate) fn fill(self, position: u32) {
        self.index.slots[self.slot] = Slot {
            hash: self.hash,
            next_position: position + 1,
        };
        self.index.used += 1;
    }
}

impl UniqueIndex {
    /// Returns an index with space for this number of elements; `None` without memory.
    pub(crate) fn with_space(elements: usize) -> Option<Self> {
        let mut length = FIRST_SLOTS;
        while elements >= length / 4 * 3 {
            length = length.saturating_mul(2);
        }
        let mut index = Self {
            slots: try_vec(length)?,
            ..Self::default()
        };
        index.slots.resize(length, Slot::default());
        Some(index)
    }

    /// Searches for an element. `is_at` returns whether the element at a position is equal to it.
    #[inline]
    pub(crate) fn search(
        &mut self,
        element: &(impl Hash + ?Sized),
        is_at: impl Fn(u32) -> bool,
    ) -> Search<'_> {
        if self.used >= self.slots.len() / 4 * 3 {
            self.grow();
        }
        let hash = self.hash_of(element);
        let mut at = home(hash, self.slots.len());
        loop {
            let slot = self.slots[at];
            match slot.next_position.checked_sub(1) {
                None => break,
                Some(position) if slot.hash == hash && is_at(position) => {
                    return Search::Found(position);
                }
                Some(_) => at = after(at, self.slots.len()),
            }
        }
        Search::Missing(FreeSlot {
            index: self,
            slot: at,
            hash,
        })
    }

    #[cfg(test)]
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    fn hash_of(&self, element: &(impl Hash + ?Sized)) -> u32 {
        let mut hasher = FoldHasher::with_seed(0, &self.seed);
        element.hash(&mut hasher);
        (hasher.finish() >> 32) as u32
    }

    /// Doubles the number of slots. The table allocates only here.
    #[cold]
    fn grow(&mut self) {
        let length = (self.slots.len() * 2).max(FIRST_SLOTS);
        let full = std::mem::replace(&mut self.slots, vec![Slot::default(); length]);
        // The slots of a table are almost in the order of their hashes, so this loop fills the new
        // one from its beginning to its end.
        for slot in full.into_iter().filter(|slot| slot.next_position != 0) {
            let mut at = home(slot.hash, length);
            while self.slots[at].next_position != 0 {
                at = after(at, length);
            }
            self.slots[at] = slot;
        }
    }
}

/// Returns the slot after `slot`, of `length` slots.
#[inline]
fn after(slot: usize, length: usize) -> usize {
    if slot + 1 == length { 0 } else { slot + 1 }
}

/// Returns the slot that a hash selects among `length` slots.
#[inline]
fn home(hash: u32, length: usize) -> usize {
    ((u64::from(hash) * length as u64) >> u32::BITS) as usize
}

/// Elements, each once, in the order in which they were first added.
#[derive(Debug)]
pub(crate) struct UniqueList<T> {
    pub(crate) elements: Vec<T>,
    index: UniqueIndex,
}

impl<T> From<Vec<T>> for UniqueList<T> {
    /// Returns a list whose index knows none of these elements.
    fn from(elements: Vec<T>) -> Self {
        let index = UniqueIndex::default();
        Self { elements, index }
    }
}

impl<T> Default for UniqueList<T> {
    fn default() -> Self {
        Self::from(Vec::new())
    }
}

impl<T: Hash + Eq + Clone> UniqueList<T> {
    /// Returns the index of an element, and adds the element if it is new.
    pub(crate) fn index(&mut self, element: &T) -> u32 {
        let Self { elements, index } = self;
        match index.search(element, |at| elements[at as usize] == *element) {
            Search::Found(known) => known,
            Search::Missing(slot) => {
                let added = elements.len() as u32;
                elements.push(element.clone());
                slot.fill(added);
                added
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_the_same_number() {
        let mut table = TextTable::default();
        let numbers = ["a", "b", "a", "", "b"].map(|text| table.intern(text));
        assert_eq!(numbers, [0, 1, 0, 2, 1]);
        assert_eq!(
            [0, 1, 2, 3].map(|index| table.get(index)),
            ["a", "b", "", ""]
        );
    }

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
        let (mut index, mut list) = (UniqueIndex::default(), Vec::new());
        let mut intern = |number: u64| {
            // All keys are equal, so all hashes are.
            match index.search(&(), |at| list[at as usize] == number) {
                Search::Found(position) => position,
                Search::Missing(slot) => {
                    list.push(number);
                    slot.fill(list.len() as u32 - 1);
                    list.len() as u32 - 1
                }
            }
        };
        assert_eq!([7, 8, 7, 9, 8].map(&mut intern), [0, 1, 0, 2, 1]);
        let many: Vec<_> = (10..100).map(&mut intern).collect();
        assert!(many.iter().copied().eq(3..93));
    }

    #[test]
    fn hash_depends_on_a_random_seed() {
        let hashes = [(); 3].map(|()| {
            let mut index = UniqueIndex::default();
            if let Search::Missing(slot) = index.search("text", |_| false) {
                slot.fill(0);
            }
            let used = index.slots.iter().find(|slot| slot.next_position != 0);
            used.map(|slot| slot.hash)
        });
        // Three equal hashes are a coincidence of 1 in 2^64.
        assert!(
            hashes[0] != hashes[1] || hashes[0] != hashes[2],
            "{hashes:?}"
        );
    }
}
