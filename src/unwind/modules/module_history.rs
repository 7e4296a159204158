//! The history of unloaded modules: where each was loaded, and in which lists of modules.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::platform::ModuleImage;
use crate::unwind::modules::loaded_module::{LoadedModule, is_same_module, module_at};

/// Maximum number of remembered module lifetimes. Addresses in older ones get no names.
const MAX_LIFETIMES: usize = 512;

/// Meaning of a sample's address, compared with the list of all modules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AddressMeaning {
    /// The address has the meaning that this list gives it.
    Same,
    /// The address lay in a module that was replaced later, at least in part, given by its number.
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
    /// Lifetimes in the order of unloading.
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

    /// Returns the modules in the order of unloading, with the numbers of their lists.
    pub(crate) fn lifetimes(&self) -> impl Iterator<Item = (&Arc<ModuleImage>, &Range<u64>)> {
        let lifetimes = self.lifetimes.iter();
        lifetimes.map(|lifetime| (&lifetime.image, &lifetime.lists))
    }

    pub(crate) fn module(&self, number: usize) -> Option<&Arc<ModuleImage>> {
        self.lifetimes.get(number).map(|lifetime| &lifetime.image)
    }

    /// Returns the meaning of an address in a sample that was unwound with module list `list`. The
    /// caller has checked that no module that is loaded now covered the address in that list.
    pub(crate) fn meaning(&self, all: &[LoadedModule], address: u64, list: u64) -> AddressMeaning {
        let now = module_at(all, address).map(|index| &all[index]);
        let was_there = |lifetime: &ModuleLifetime| {
            lifetime.lists.contains(&list) && lifetime.image.range.contains(&address)
        };
        let is_same = |known: &ModuleLifetime| {
            now.is_some_and(|now| is_same_module(&known.image, &now.image))
        };
        match self.lifetimes.iter().position(was_there) {
            Some(number) if is_same(&self.lifetimes[number]) => AddressMeaning::Same,
            // The list may have nothing here, because a later module covers another part of this
            // one.
            Some(number) => AddressMeaning::Replaced(number),
            None if now.is_some() => AddressMeaning::Unknown,
            None => AddressMeaning::Same,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::list_modules;

    /// Returns a module at this address, without build id.
    fn module_at(range: Range<u64>) -> ModuleImage {
        let (_, mut images) = list_modules().expect("memory");
        let mut image = images.remove(0);
        image.range = range;
        image.build_id.clear();
        image
    }

    #[test]
    fn address_below_an_overlapping_later_module_keeps_its_meaning() {
        let (first, second) = (module_at(0x1000..0x5000), module_at(0x3000..0x7000));
        let mut history = ModuleHistory::default();
        history.add(&first, 1..2);
        let all = [LoadedModule {
            image: Arc::new(second),
            unloaded: false,
        }];
        let meaning = |address, list| history.meaning(&all, address, list);
        assert_eq!(meaning(0x2000, 1), AddressMeaning::Replaced(0));
        assert_eq!(meaning(0x4000, 1), AddressMeaning::Replaced(0));
        assert_eq!(
            meaning(0x2000, 2),
            AddressMeaning::Same,
            "no module then or now"
        );
        assert_eq!(meaning(0x6000, 1), AddressMeaning::Unknown);
    }
}
