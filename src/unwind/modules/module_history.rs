//! The history of unloaded modules: where each was loaded, and in which lists of modules.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::platform::ModuleImage;
use crate::unwind::modules::loaded_module::{LoadedModule, is_same_module};

/// Maximum number of remembered module lifetimes. Addresses in older ones get no names.
const MAX_LIFETIMES: usize = 512;

/// Meaning of a sample's address, compared with the list of all modules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AddressMeaning {
    /// The address has the meaning that this list gives it.
    Same,
    /// The address lay in a module that was replaced later, given by its number.
    Replaced(usize),
    /// The address lay in a different module, which is no longer known.
    Unknown,
}

/// The time during which a module was loaded at one address.
#[derive(Clone, Debug)]
struct ModuleLifetime {
    /// The module, without its unwind sections.
    image: Arc<ModuleImage>,
    /// Numbers of the lists that contained the module.
    lists: Range<u64>,
}

/// The lifetimes of unloaded modules.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModuleHistory {
    /// In the order of unloading.
    lifetimes: VecDeque<ModuleLifetime>,
}

impl ModuleHistory {
    pub(crate) fn add(&mut self, image: &ModuleImage, lists: Range<u64>) {
        let image = Arc::new(image.without_unwind_sections());
        self.lifetimes.push_back(ModuleLifetime { image, lists });
        if self.lifetimes.len() > MAX_LIFETIMES {
            self.lifetimes.pop_front();
        }
    }

    pub(crate) fn latest_first(&self) -> impl Iterator<Item = &Arc<ModuleImage>> {
        self.lifetimes.iter().rev().map(|lifetime| &lifetime.image)
    }

    pub(crate) fn module(&self, number: usize) -> Option<&Arc<ModuleImage>> {
        self.lifetimes.get(number).map(|lifetime| &lifetime.image)
    }

    /// Returns the meaning of an address in a sample that was unwound with module list `list`. The
    /// caller has checked that no module that is loaded now covered the address in that list.
    pub(crate) fn meaning(&self, all: &[LoadedModule], address: u64, list: u64) -> AddressMeaning {
        let after = all.partition_point(|module| module.image.range.start <= address);
        let now = after.checked_sub(1).map(|index| &all[index]);
        let Some(now) = now.filter(|now| now.image.range.contains(&address)) else {
            return AddressMeaning::Same;
        };
        let was_there = |lifetime: &ModuleLifetime| {
            lifetime.lists.contains(&list) && lifetime.image.range.contains(&address)
        };
        match self.lifetimes.iter().position(was_there) {
            Some(number) if !is_same_module(&self.lifetimes[number].image, &now.image) => {
                AddressMeaning::Replaced(number)
            }
            Some(_) => AddressMeaning::Same,
            None => AddressMeaning::Unknown,
        }
    }
}
