//! The modules of a session: those that are loaded, and those that were.
//!
//! A place in memory may belong to one library after another. What was captured is unwound later than it was captured, so
//! each change leaves *doubts*: places where code was, or may have been, that is not what the table has there now. What
//! was captured before the change is not believed where it lies in one of them.
//!
//! Samples are named later still. They are written by the thread that follows the changes, with the number of the list that
//! they were unwound by; `module_history.rs` keeps what was where.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::base::TimeStamp;
use crate::platform::{ModuleChanges, ModuleImage, list_modules, module_changes, monotonic_now};
use crate::unwind::module_history::{Meant, ModuleHistory};

/// Older doubts are given up: what was captured before them is not believed in any module that can be unloaded.
const MAX_DOUBTS: usize = 1024;

/// A module of the session.
#[derive(Clone, Debug)]
pub(crate) struct LoadedModule {
    pub(crate) image: Arc<ModuleImage>,
    /// Whether it is gone, so that its addresses may mean something else by now.
    pub(crate) unloaded: bool,
}

/// A module that is loaded.
#[derive(Clone, Debug)]
struct Present {
    image: Arc<ModuleImage>,
    /// The first list that it is in.
    from: u64,
}

/// Places where other code was, or may have been, before a time.
#[derive(Clone, Debug, Default)]
struct Doubts {
    /// The oldest first.
    places: VecDeque<(Range<u64>, TimeStamp)>,
    /// Before this, nothing is known.
    since: TimeStamp,
}

/// All modules that samples of the session may lie in.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModuleTable {
    changes: ModuleChanges,
    /// When it was looked last and this was what is loaded.
    seen_at: TimeStamp,
    /// When the last change had been taken up.
    changed_at: TimeStamp,
    /// A change was seen that is not taken up yet.
    is_stale: bool,
    /// Which list this is.
    number: u64,
    /// Sorted by address, without overlaps.
    loaded: Vec<Present>,
    history: ModuleHistory,
    /// Those that the last change took away.
    gone: Vec<Arc<ModuleImage>>,
    doubts: Doubts,
}

/// Whether it is the same file at the same place.
pub(super) fn is_same(one: &ModuleImage, other: &ModuleImage) -> bool {
    one.range == other.range && one.path == other.path && one.build_id == other.build_id
}

fn overlap(one: &ModuleImage, other: &ModuleImage) -> bool {
    one.range.start < other.range.end && other.range.start < one.range.end
}

impl Doubts {
    fn add(&mut self, place: Range<u64>, until: TimeStamp) {
        self.places.push_back((place, until));
        if self.places.len() > MAX_DOUBTS
            && let Some((_, until)) = self.places.pop_front()
        {
            self.since = until;
        }
    }
}

impl ModuleTable {
    /// Looks whether anything was loaded or unloaded since the last refresh. Takes the loader's lock for a moment.
    pub(crate) fn look(&mut self) -> bool {
        let now = monotonic_now();
        self.is_stale = self.loaded.is_empty() || module_changes() != self.changes;
        if !self.is_stale {
            self.seen_at = now;
        }
        self.is_stale
    }

    /// Lists the modules anew.
    pub(crate) fn refresh(&mut self) {
        self.number += 1;
        let number = self.number;
        self.seen_at = monotonic_now();
        let (changes, images) = list_modules();
        self.changed_at = monotonic_now();
        let (loads, unloads) = changes.since(self.changes);
        self.changes = changes;
        self.is_stale = false;
        // The loader lists them in the order in which it loaded them.
        let may_be_new = |image: &ModuleImage| image.loaded_behind < loads;
        let recent: Vec<_> = images
            .iter()
            .filter(|image| may_be_new(image))
            .map(|image| image.range.clone())
            .collect();
        let before = std::mem::take(&mut self.loaded);
        for image in images {
            // Without a build id a file that was loaded again may be another one by now.
            let is_certain = !image.build_id.is_empty() || !may_be_new(&image);
            let known = before
                .iter()
                .find(|old| is_certain && is_same(&old.image, &image));
            let new = || Present {
                image: Arc::new(image),
                from: number,
            };
            self.loaded.push(known.cloned().unwrap_or_else(new));
        }
        let is_loaded = |old: &Present| {
            self.loaded
                .iter()
                .any(|new| Arc::ptr_eq(&new.image, &old.image))
        };
        let gone: Vec<Present> = before
            .iter()
            .filter(|old| !is_loaded(old))
            .cloned()
            .collect();
        if before.is_empty() {
            self.doubts.since = self.changed_at;
        } else if unloads > gone.len() as u64 {
            // Something came and went unseen, where one of these is now.
            recent
                .into_iter()
                .for_each(|place| self.doubts.add(place, self.changed_at));
        }
        for module in &gone {
            self.doubts.add(module.image.range.clone(), self.changed_at);
            self.history.add(&module.image, module.from..number);
        }
        self.gone = gone.into_iter().map(|module| module.image).collect();
    }

    /// The modules that the last refresh found gone.
    pub(super) fn gone(&self) -> &[Arc<ModuleImage>] {
        &self.gone
    }

    /// Which list this is. What a stack's addresses mean is told by the one that it was unwound by.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether it was looked after that time what is loaded.
    pub(super) fn has_looked_after(&self, time: TimeStamp) -> bool {
        time < self.seen_at
    }

    /// Whether anything may be doubtful in a capture of that time.
    pub(super) fn has_doubts(&self, time: TimeStamp) -> bool {
        time < self.changed_at || self.is_stale
    }

    /// Whether this address may have meant something else when a capture of that time was made.
    pub(super) fn is_doubtful(&self, address: u64, time: TimeStamp) -> bool {
        if time < self.doubts.since || (self.is_stale && time >= self.seen_at) {
            return self.find(address).is_some_and(|module| !module.stays);
        }
        let later = self
            .doubts
            .places
            .iter()
            .rev()
            .take_while(|(_, until)| time < *until);
        later
            .map(|(place, _)| place)
            .any(|place| place.contains(&address))
    }

    /// The module that this address lies in.
    pub(crate) fn find(&self, address: u64) -> Option<&Arc<ModuleImage>> {
        self.present_at(address).map(|present| &present.image)
    }

    fn present_at(&self, address: u64) -> Option<&Present> {
        let after = self
            .loaded
            .partition_point(|module| module.image.range.start <= address);
        self.loaded
            .get(after.checked_sub(1)?)
            .filter(|module| address < module.image.range.end)
    }

    /// All modules of the session, sorted by address and without overlaps: of two at the same place the one that is
    /// loaded now, or was last.
    pub(crate) fn all(&self) -> Vec<LoadedModule> {
        let mut all: Vec<LoadedModule> = Vec::new();
        let loaded = self.loaded.iter().map(|module| (&module.image, false));
        let unloaded = self.history.latest_first().map(|image| (image, true));
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

    /// The same, of which only those count as loaded that still are at this very moment. A few µs when nothing changed
    /// since the last refresh, else some hundred.
    pub(crate) fn all_as_of_now(&self) -> Vec<LoadedModule> {
        let mut all = self.all();
        let mut now = self.clone();
        if now.look() {
            now.refresh();
            for module in &mut all {
                module.unloaded |= !now
                    .loaded
                    .iter()
                    .any(|new| Arc::ptr_eq(&new.image, &module.image));
            }
        }
        all
    }

    /// What an address meant in a sample that was unwound by the list of this number, beside what it means in `all`.
    pub(crate) fn meaning(&self, all: &[LoadedModule], address: u64, number: u64) -> Meant {
        if self
            .present_at(address)
            .is_some_and(|module| module.from <= number)
        {
            return Meant::Same;
        }
        self.history.meaning(all, address, number)
    }

    /// A module that was replaced, by its number.
    pub(crate) fn replaced(&self, number: usize) -> Option<&Arc<ModuleImage>> {
        self.history.module(number)
    }
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
        assert!(table.look());
        table.refresh();
        table.number()
    }

    #[test]
    fn an_address_of_this_program_is_found() {
        let table = table();
        let own = ModuleTable::refresh as fn(&mut ModuleTable) as usize as u64;
        let module = table.find(own).expect("this program");
        assert!(module.stays);
        assert_eq!(module.path, std::env::current_exe().expect("path"));
        assert!(table.find(1).is_none() && table.find(u64::MAX).is_none());
        assert_eq!(table.all().len(), table.loaded.len());
    }

    /// Other tests may load something meanwhile, and the loader may find another place; then it is tried again.
    fn until_in_place(mut body: impl FnMut(&TestFolder) -> bool) {
        let folder = TestFolder::new("module-table");
        assert!((0..50).any(|_| body(&folder)), "never in the same place");
    }

    /// One test, as each would move the others' libraries.
    #[test]
    fn what_was_loaded_in_between_is_doubted_and_everything_keeps_its_meaning() {
        until_in_place(|folder| {
            let (a, b) = (
                folder.compile("a", "function_a", &[]),
                folder.compile("b", "function_b", &[]),
            );
            let mut table = table();
            let first = TestLibrary::load(&a);
            let place = first.address();
            let with_a = follow(&mut table);
            let in_a = monotonic_now();
            first.close();
            let second = TestLibrary::load(&b);
            if second.address() != place {
                return false;
            }
            let in_b = monotonic_now();
            assert!(
                table.look() && table.is_doubtful(place, in_b),
                "nobody knows what it is"
            );
            table.refresh();
            let with_b = table.number();
            assert!(table.is_doubtful(place, in_a) && table.is_doubtful(place, in_b));
            assert!(!table.is_doubtful(place, monotonic_now()));
            follow_another(folder, &mut table);
            assert!(table.is_doubtful(place, in_b), "also after another change");
            let all = table.all();
            let meant = |number| table.meaning(&all, place, number);
            assert_eq!(
                (meant(with_b), meant(with_a - 1)),
                (Meant::Same, Meant::Unknown)
            );
            let Meant::Replaced(number) = meant(with_b - 1) else {
                panic!("{:?}", meant(with_b - 1))
            };
            assert_eq!(table.replaced(number).expect("a").path, a);
            assert_eq!(meant(with_a), Meant::Replaced(number));
            second.close();
            true
        });
        until_in_place(|folder| {
            let (a, x) = (
                folder.compile("a2", "function_a", &[]),
                folder.compile("x", "function_x", &[]),
            );
            let mut table = table();
            let first = TestLibrary::load(&a);
            let place = first.address();
            let with_a = follow(&mut table);
            first.close();
            let unseen = TestLibrary::load(&x);
            let (place_of_x, in_x) = (unseen.address(), monotonic_now());
            unseen.close();
            let again = TestLibrary::load(&a);
            follow(&mut table);
            if (place_of_x, again.address()) != (place, place) {
                return false;
            }
            assert!(
                table.is_doubtful(place, in_x),
                "captured in x, unwound as a"
            );
            assert_eq!(table.meaning(&table.all(), place, with_a), Meant::Same);
            again.close();
            true
        });
        until_in_place(|folder| {
            let no_id = &["-Wl,--build-id=none"];
            let mut table = table();
            let first = TestLibrary::load(&folder.compile("hot", "function_before", no_id));
            let place = first.address();
            follow(&mut table);
            let (before, in_first) = (
                Arc::clone(table.find(place).expect("loaded")),
                monotonic_now(),
            );
            let then = table.clone();
            first.close();
            let second = TestLibrary::load(&folder.compile("hot", "function_after", no_id));
            if second.address() != place {
                return false;
            }
            follow(&mut table);
            let after = table.find(place).expect("loaded");
            assert!(
                !Arc::ptr_eq(&before, after),
                "the same path may be another file by now"
            );
            assert!(table.is_doubtful(place, in_first));
            let as_of_now = then.all_as_of_now();
            let module = as_of_now
                .iter()
                .find(|module| module.image.range.contains(&place));
            assert!(module.expect("it was there").unloaded);
            second.close();
            true
        });
    }

    fn follow_another(folder: &TestFolder, table: &mut ModuleTable) {
        // It stays loaded, so that nothing is unloaded here.
        TestLibrary::load(&folder.compile("another", "another_function", &[]));
        follow(table);
    }
}
