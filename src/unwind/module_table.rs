//! The modules of a session, loaded and unloaded.
//!
//! An address may belong to several libraries one after another, and a stack is unwound some time
//! after it was captured. So each change of the modules records *doubtful ranges*: ranges where
//! other code was, or may have been, before the change. In a stack that was captured before the
//! change, an address in such a range is not trusted.
//!
//! Samples get their names even later. The sampler thread, which also updates this table, writes
//! each sample with the number of the list of modules with which it was unwound. The table
//! remembers the modules of earlier lists.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::platform::{ModuleChanges, ModuleImage, list_modules, module_changes, monotonic_now};
use crate::types::TimeStamp;

/// Maximum number of doubtful ranges. Beyond it the oldest is dropped. In a stack captured before
/// the change of the dropped range, every module that can be unloaded is then doubtful.
const MAX_DOUBTFUL_RANGES: usize = 1024;
/// Maximum number of remembered module lifetimes. Addresses in older ones get no names.
const MAX_LIFETIMES: usize = 512;

/// A module of the session.
#[derive(Clone, Debug)]
pub(crate) struct LoadedModule {
    pub(crate) image: Arc<ModuleImage>,
    /// Whether the module was unloaded, so that its addresses may belong to other code now.
    pub(crate) unloaded: bool,
}

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

/// A loaded module.
#[derive(Clone, Debug)]
struct PresentModule {
    image: Arc<ModuleImage>,
    /// Number of the first list that contains the module.
    from: u64,
}

/// The time during which a module was loaded at one address.
#[derive(Clone, Debug)]
struct ModuleLifetime {
    /// The module, without its unwind sections.
    image: Arc<ModuleImage>,
    /// Numbers of the lists that contained the module.
    lists: Range<u64>,
}

/// All modules that samples of the session may lie in.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModuleTable {
    changes: ModuleChanges,
    /// Time of the last refresh, or of the last check that found this list up to date.
    checked_at: TimeStamp,
    /// Time at which the last refresh ended.
    changed_at: TimeStamp,
    /// Whether a check found a change that needs a refresh.
    is_stale: bool,
    /// Number of this list of modules.
    number: u64,
    /// Sorted by address, without overlaps.
    loaded: Vec<PresentModule>,
    /// The lifetimes of unloaded modules, in the order of unloading.
    history: VecDeque<ModuleLifetime>,
    /// The modules that the last refresh found unloaded.
    gone: Vec<Arc<ModuleImage>>,
    /// Ranges where other code was, or may have been, before the time of their change, oldest
    /// first.
    doubtful: VecDeque<(Range<u64>, TimeStamp)>,
    /// Time before which these ranges are not known.
    doubtful_since: TimeStamp,
}

fn overlap(one: &ModuleImage, other: &ModuleImage) -> bool {
    one.range.start < other.range.end && other.range.start < one.range.end
}

impl ModuleTable {
    /// Checks whether any module was loaded or unloaded since the last refresh. Holds the loader's
    /// lock briefly.
    pub(crate) fn check(&mut self) -> bool {
        let now = monotonic_now();
        self.is_stale = self.loaded.is_empty() || module_changes() != self.changes;
        if !self.is_stale {
            self.checked_at = now;
        }
        self.is_stale
    }

    /// Lists the loaded modules again. Returns false if there is not enough memory; then the list
    /// stays as it is, and stale.
    pub(crate) fn refresh(&mut self) -> bool {
        let checked_at = monotonic_now();
        let Some((changes, images)) = list_modules() else {
            self.is_stale = true;
            return false;
        };
        self.number += 1;
        let number = self.number;
        self.checked_at = checked_at;
        self.changed_at = monotonic_now();
        let (loads, unloads) = changes.since(self.changes);
        self.changes = changes;
        self.is_stale = false;
        // The loader lists the modules in load order, so a new one is among the last `loads` of
        // them. Many loads and unloads may have left few new ones, or none.
        let may_be_new = |image: &ModuleImage| !image.stays && image.loaded_after < loads;
        let recent: Vec<_> = images
            .iter()
            .filter(|image| may_be_new(image))
            .map(|image| image.range.clone())
            .collect();
        let before = std::mem::take(&mut self.loaded);
        for image in images {
            // Without a build id, a file that was loaded again may have been replaced.
            let is_certain = !image.build_id.is_empty() || !may_be_new(&image);
            let known = before
                .iter()
                .find(|old| is_certain && is_same_module(&old.image, &image));
            let new = || PresentModule {
                image: Arc::new(image),
                from: number,
            };
            self.loaded.push(known.cloned().unwrap_or_else(new));
        }
        let gone: Vec<PresentModule> = before
            .iter()
            .filter(|old| !self.has_loaded(&old.image))
            .cloned()
            .collect();
        if before.is_empty() {
            self.doubtful_since = self.changed_at;
        } else if unloads > gone.len() as u64 {
            // Other modules were loaded and unloaded between two refreshes, perhaps at the
            // addresses of the recently loaded ones.
            recent
                .into_iter()
                .for_each(|range| self.add_doubtful(range));
        }
        for module in &gone {
            self.add_doubtful(module.image.range.clone());
            self.add_lifetime(&module.image, module.from..number);
        }
        self.gone = gone.into_iter().map(|module| module.image).collect();
        true
    }

    /// Notes that there was, or may have been, other code in a range until the last refresh.
    fn add_doubtful(&mut self, range: Range<u64>) {
        self.doubtful.push_back((range, self.changed_at));
        if self.doubtful.len() > MAX_DOUBTFUL_RANGES
            && let Some((_, until)) = self.doubtful.pop_front()
        {
            self.doubtful_since = until;
        }
    }

    /// Calls `use_module` with each module that was loaded or unloaded since the list `seen`: with its
    /// first list, and the first one without it.
    pub(crate) fn for_each_since(
        &self,
        seen: u64,
        mut use_module: impl FnMut(&ModuleImage, u64, Option<u64>),
    ) {
        let loaded = self.loaded.iter().filter(|module| module.from > seen);
        loaded.for_each(|module| use_module(&module.image, module.from, None));
        for ModuleLifetime { image, lists } in &self.history {
            if lists.end > seen {
                use_module(image, lists.start, Some(lists.end));
            }
        }
    }

    /// Makes the table of a process that has ended, from its modules, each with its first list and
    /// the first one without it. Leaves out modules that overlap an earlier one that is loaded.
    pub(crate) fn of_past_process(modules: Vec<(ModuleImage, u64, Option<u64>)>) -> Self {
        let mut table = Self::default();
        let mut gone = Vec::new();
        for (image, from, until) in modules {
            match until {
                Some(until) => gone.push((until, from, image)),
                None if table
                    .loaded
                    .iter()
                    .any(|other| overlap(&other.image, &image)) => {}
                None => table.loaded.push(PresentModule {
                    image: Arc::new(image),
                    from,
                }),
            }
        }
        table.loaded.sort_by_key(|module| module.image.range.start);
        gone.sort_by_key(|&(until, from, _)| (until, from));
        for (until, from, image) in gone {
            table.add_lifetime(&image, from..until);
        }
        table
    }

    /// Returns the modules that the last refresh found unloaded.
    pub(crate) fn gone(&self) -> &[Arc<ModuleImage>] {
        &self.gone
    }

    /// Returns the number of this list. The addresses of a stack refer to the list with which it
    /// was unwound.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns whether this list was made after `other`.
    pub(crate) fn is_newer_than(&self, other: &Self) -> bool {
        self.changed_at > other.changed_at
    }

    /// Returns whether a refresh, or a check that found this list up to date, began after `time`.
    pub(crate) fn was_checked_after(&self, time: TimeStamp) -> bool {
        time < self.checked_at
    }

    /// Returns whether the last check found a change that needs a refresh.
    pub(crate) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Returns whether a capture made at `time` may contain a doubtful address.
    pub(crate) fn may_be_doubtful(&self, time: TimeStamp) -> bool {
        time < self.changed_at || self.is_stale
    }

    /// Returns whether `address` may have belonged to other code at `time`, when a stack was
    /// captured.
    pub(crate) fn is_doubtful(&self, address: u64, time: TimeStamp) -> bool {
        if time < self.doubtful_since || (self.is_stale && time >= self.checked_at) {
            return self.find(address).is_some_and(|module| !module.stays);
        }
        let latest_first = self.doubtful.iter().rev();
        let mut later = latest_first.take_while(|(_, until)| time < *until);
        later.any(|(range, _)| range.contains(&address))
    }

    /// Returns the module that contains `address`.
    pub(crate) fn find(&self, address: u64) -> Option<&Arc<ModuleImage>> {
        self.present_at(address).map(|present| &present.image)
    }

    fn present_at(&self, address: u64) -> Option<&PresentModule> {
        let after = self
            .loaded
            .partition_point(|module| module.image.range.start <= address);
        self.loaded
            .get(after.checked_sub(1)?)
            .filter(|module| address < module.image.range.end)
    }

    /// Returns all modules of the session, sorted by address and without overlaps. Of overlapping
    /// modules it keeps the one that is loaded now, or was unloaded last.
    pub(crate) fn all(&self) -> Vec<LoadedModule> {
        let mut all: Vec<LoadedModule> = Vec::new();
        let loaded = self.loaded.iter().map(|module| (&module.image, false));
        let latest_first = self.history.iter().rev();
        let unloaded = latest_first.map(|lifetime| (&lifetime.image, true));
        for (image, unloaded) in loaded.chain(unloaded) {
            if !all.iter().any(|other| overlap(&other.image, image)) {
                all.push(LoadedModule {
                    image: Arc::clone(image),
                    unloaded,
                });
            }
        }
        all.sort_by_key(|module| module.image.range.start);
        all
    }

    /// Returns all modules of the session like [`Self::all`], and marks those as unloaded that are
    /// no longer loaded at the time of this call. Cost: a few µs without a change since the last
    /// refresh, otherwise some hundred µs.
    pub(crate) fn all_as_of_now(&self) -> Vec<LoadedModule> {
        let mut all = self.all();
        let mut now = self.clone();
        if now.check() && now.refresh() {
            for module in &mut all {
                module.unloaded |= !now.has_loaded(&module.image);
            }
        }
        all
    }

    fn has_loaded(&self, image: &Arc<ModuleImage>) -> bool {
        let mut loaded = self.loaded.iter();
        loaded.any(|module| Arc::ptr_eq(&module.image, image))
    }

    /// Returns the meaning of an address in a sample that was unwound with list `number`, compared
    /// with its meaning in `all`.
    pub(crate) fn meaning(
        &self,
        all: &[LoadedModule],
        address: u64,
        number: u64,
    ) -> AddressMeaning {
        if self
            .present_at(address)
            .is_some_and(|module| module.from <= number)
        {
            return AddressMeaning::Same;
        }
        // No module that is loaded now covered the address in that list.
        let now = module_at(all, address).map(|index| &all[index]);
        let was_there = |lifetime: &ModuleLifetime| {
            lifetime.lists.contains(&number) && lifetime.image.range.contains(&address)
        };
        let is_same = |known: &ModuleLifetime| {
            now.is_some_and(|now| is_same_module(&known.image, &now.image))
        };
        match self.history.iter().position(was_there) {
            Some(replaced) if is_same(&self.history[replaced]) => AddressMeaning::Same,
            // The list may have nothing here, because a later module covers another part of this
            // one.
            Some(replaced) => AddressMeaning::Replaced(replaced),
            None if now.is_some() => AddressMeaning::Unknown,
            None => AddressMeaning::Same,
        }
    }

    fn add_lifetime(&mut self, image: &ModuleImage, lists: Range<u64>) {
        let image = Arc::new(image.without_unwind_sections());
        self.history.push_back(ModuleLifetime { image, lists });
        if self.history.len() > MAX_LIFETIMES {
            self.history.pop_front();
        }
    }

    /// Returns a replaced module by its number.
    pub(crate) fn replaced(&self, number: usize) -> Option<&Arc<ModuleImage>> {
        self.history.get(number).map(|lifetime| &lifetime.image)
    }
}

/// Returns whether both are the same file at the same address.
fn is_same_module(one: &ModuleImage, other: &ModuleImage) -> bool {
    one.range == other.range && one.path == other.path && one.build_id == other.build_id
}

/// Returns the index of the module at an address, among modules in the order of their addresses.
pub(crate) fn module_at(modules: &[LoadedModule], address: u64) -> Option<usize> {
    let after = modules.partition_point(|module| module.image.range.start <= address);
    let index = after.checked_sub(1)?;
    let range = &modules[index].image.range;
    range.contains(&address).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{TestFolder, TestLibrary};

    fn table() -> ModuleTable {
        let mut table = ModuleTable::default();
        table.refresh();
        table
    }

    fn follow(table: &mut ModuleTable) -> u64 {
        assert!(table.check());
        table.refresh();
        table.number()
    }

    #[test]
    fn address_of_this_program_is_found() {
        let table = table();
        let own = ModuleTable::refresh as fn(&mut ModuleTable) -> bool as usize as u64;
        let module = table.find(own).expect("this program");
        assert!(module.stays);
        assert_eq!(module.path, std::env::current_exe().expect("path"));
        assert!(table.find(1).is_none() && table.find(u64::MAX).is_none());
        assert_eq!(table.all().len(), table.loaded.len());
    }

    #[test]
    fn needed_library_is_never_doubtful() {
        let folder = TestFolder::new("needed-library");
        let plugin = TestLibrary::load(&folder.compile("plugin", "function", &[]));
        let before = monotonic_now();
        let mut table = table();
        let is_c_library = |module: &&ModuleImage| {
            let name = module.path.file_name().unwrap_or_default();
            name.to_string_lossy().starts_with("libc.")
        };
        let modules = list_modules().expect("memory").1;
        let needed = modules.iter().find(is_c_library).expect("the C library");
        let needed = needed.range.start;
        let doubtful = |table: &ModuleTable, time| {
            [plugin.address(), needed].map(|address| table.is_doubtful(address, time))
        };
        assert_eq!(
            doubtful(&table, before),
            [true, false],
            "before the first list"
        );
        let other = folder.compile("other", "other_function", &[]);
        let other = || TestLibrary::load(&other);
        let loaded = other();
        assert!(table.check());
        let now = monotonic_now();
        assert_eq!(doubtful(&table, now), [true, false], "the list is old");
        loaded.close();
        // More loads than there are modules.
        (0..100).for_each(|_| other().close());
        let loaded = other();
        table.refresh();
        assert_eq!(doubtful(&table, now), [true, false], "many loads");
        loaded.close();
        plugin.close();
    }

    /// Repeats `body` until it returns true. Concurrent tests may load libraries, so that the
    /// loader chooses another address than the test needs.
    fn retry_until_same_address(mut body: impl FnMut(&TestFolder) -> bool) {
        let folder = TestFolder::new("module-table");
        assert!((0..50).any(|_| body(&folder)), "never at the same address");
    }

    #[test]
    fn replaced_modules_are_doubtful_and_addresses_keep_their_meaning() {
        retry_until_same_address(|folder| {
            let (a, b) = (
                folder.compile("a", "function_a", &[]),
                folder.compile("b", "function_b", &[]),
            );
            let mut table = table();
            let first = TestLibrary::load(&a);
            let address = first.address();
            let with_a = follow(&mut table);
            let in_a = monotonic_now();
            first.close();
            let second = TestLibrary::load(&b);
            if second.address() != address {
                return false;
            }
            let in_b = monotonic_now();
            assert!(
                table.check() && table.is_doubtful(address, in_b),
                "the table is stale"
            );
            table.refresh();
            let with_b = table.number();
            assert!(table.is_doubtful(address, in_a) && table.is_doubtful(address, in_b));
            assert!(!table.is_doubtful(address, monotonic_now()));
            follow_another(folder, &mut table);
            assert!(
                table.is_doubtful(address, in_b),
                "also after another change"
            );
            let all = table.all();
            let meant = |number| table.meaning(&all, address, number);
            assert_eq!(
                (meant(with_b), meant(with_a - 1)),
                (AddressMeaning::Same, AddressMeaning::Unknown)
            );
            let AddressMeaning::Replaced(number) = meant(with_b - 1) else {
                panic!("{:?}", meant(with_b - 1))
            };
            assert_eq!(table.replaced(number).expect("a").path, a);
            assert_eq!(meant(with_a), AddressMeaning::Replaced(number));
            second.close();
            true
        });
        retry_until_same_address(|folder| {
            let (a, x) = (
                folder.compile("a2", "function_a", &[]),
                folder.compile("x", "function_x", &[]),
            );
            let mut table = table();
            let first = TestLibrary::load(&a);
            let address = first.address();
            let with_a = follow(&mut table);
            first.close();
            let unseen = TestLibrary::load(&x);
            let (address_of_x, in_x) = (unseen.address(), monotonic_now());
            unseen.close();
            let again = TestLibrary::load(&a);
            follow(&mut table);
            if (address_of_x, again.address()) != (address, address) {
                return false;
            }
            assert!(
                table.is_doubtful(address, in_x),
                "captured in library x, unwound with library a"
            );
            assert_eq!(
                table.meaning(&table.all(), address, with_a),
                AddressMeaning::Same
            );
            again.close();
            true
        });
        retry_until_same_address(|folder| {
            let no_id = &["-Wl,--build-id=none"];
            let mut table = table();
            let first = TestLibrary::load(&folder.compile("hot", "function_before", no_id));
            let address = first.address();
            follow(&mut table);
            let (before, in_first) = (
                Arc::clone(table.find(address).expect("loaded")),
                monotonic_now(),
            );
            let then = table.clone();
            first.close();
            let second = TestLibrary::load(&folder.compile("hot", "function_after", no_id));
            if second.address() != address {
                return false;
            }
            follow(&mut table);
            let after = table.find(address).expect("loaded");
            assert!(
                !Arc::ptr_eq(&before, after),
                "the file at the same path may have been replaced"
            );
            assert!(table.is_doubtful(address, in_first));
            let as_of_now = then.all_as_of_now();
            let module = as_of_now
                .iter()
                .find(|module| module.image.range.contains(&address));
            assert!(module.expect("a listed module").unloaded);
            second.close();
            true
        });
    }

    fn follow_another(folder: &TestFolder, table: &mut ModuleTable) {
        // Not closed, so that this loads a library but unloads none.
        TestLibrary::load(&folder.compile("another", "another_function", &[]));
        follow(table);
    }

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
        let mut table = ModuleTable::default();
        table.add_lifetime(&first, 1..2);
        let all = [LoadedModule {
            image: Arc::new(second),
            unloaded: false,
        }];
        let meaning = |address, list| table.meaning(&all, address, list);
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
