//! What was where: modules that were unloaded, and the lists of modules that they stood in.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::platform::ModuleImage;
use crate::unwind::module_table::{LoadedModule, is_same};

/// So many stays are remembered; what was sampled in older ones has no name.
const MAX_STAYS: usize = 512;

/// What an address meant in a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meant {
    /// What it means in the list of all modules.
    Same,
    /// Code of a module that was replaced there, by its number.
    Replaced(usize),
    /// Something else than it means in that list; nobody remembers what.
    Unknown,
}

/// A module's time at its place.
#[derive(Clone, Debug)]
struct Stay {
    /// Without its unwind sections.
    image: Arc<ModuleImage>,
    /// The numbers of the lists that it stood in.
    lists: Range<u64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ModuleHistory {
    /// The first to go first.
    stays: VecDeque<Stay>,
}

impl ModuleHistory {
    pub(super) fn add(&mut self, image: &ModuleImage, lists: Range<u64>) {
        let image = Arc::new(image.without_unwind_sections());
        self.stays.push_back(Stay { image, lists });
        if self.stays.len() > MAX_STAYS {
            self.stays.pop_front();
        }
    }

    pub(super) fn latest_first(&self) -> impl Iterator<Item = &Arc<ModuleImage>> {
        self.stays.iter().rev().map(|stay| &stay.image)
    }

    pub(super) fn module(&self, number: usize) -> Option<&Arc<ModuleImage>> {
        self.stays.get(number).map(|stay| &stay.image)
    }

    /// What an address meant in a sample that was unwound by this list, in which no module that is loaded was there.
    pub(super) fn meaning(&self, all: &[LoadedModule], address: u64, list: u64) -> Meant {
        let after = all.partition_point(|module| module.image.range.start <= address);
        let now = after.checked_sub(1).map(|index| &all[index]);
        let Some(now) = now.filter(|now| now.image.range.contains(&address)) else {
            return Meant::Same;
        };
        let was_there =
            |stay: &Stay| stay.lists.contains(&list) && stay.image.range.contains(&address);
        match self.stays.iter().position(was_there) {
            Some(number) if !is_same(&self.stays[number].image, &now.image) => {
                Meant::Replaced(number)
            }
            Some(_) => Meant::Same,
            None => Meant::Unknown,
        }
    }
}
