//! A list of elements without duplicates.

use std::hash::Hash;

use crate::util::{Search, UniqueIndex};

/// Elements, each once, in the order in which they were first added.
#[derive(Debug)]
pub(super) struct UniqueList<T> {
    pub(super) elements: Vec<T>,
    index: UniqueIndex,
}

impl<T> Default for UniqueList<T> {
    fn default() -> Self {
        Self {
            elements: Vec::new(),
            index: UniqueIndex::default(),
        }
    }
}

impl<T: Hash + Eq> UniqueList<T> {
    /// Returns the index of an element, and adds the element if it is new.
    pub(super) fn index(&mut self, element: T) -> u32 {
        let Self { elements, index } = self;
        match index.search(&element, |at| elements[at as usize] == element) {
            Search::Found(known) => known,
            Search::Missing(slot) => {
                elements.push(element);
                let added = elements.len() as u32 - 1;
                slot.fill(added);
                added
            }
        }
    }
}
