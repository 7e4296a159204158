//! The modules of a session: those that are loaded, and those that were.

use std::ops::Range;
use std::sync::Arc;

use crate::base::TimeStamp;
use crate::platform::{ModuleChanges, ModuleImage, list_modules, module_changes, monotonic_now};

/// So many of the modules that went are remembered. One that comes and goes where nobody else was meanwhile counts once.
const MAX_UNLOADED: usize = 512;

/// A module of the session.
#[derive(Clone, Debug)]
pub(crate) struct LoadedModule {
    pub(crate) image: Arc<ModuleImage>,
    /// Whether it is gone, so that its addresses may mean something else by now.
    pub(crate) unloaded: bool,
}

/// A module that was found gone.
#[derive(Clone, Debug)]
struct UnloadedModule {
    image: Arc<ModuleImage>,
    /// From here on its addresses mean nothing, or something else.
    gone_by: TimeStamp,
}

/// All modules that samples of the session may lie in.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModuleTable {
    changes: ModuleChanges,
    /// When this was what is loaded, as far as was looked.
    seen_at: TimeStamp,
    /// When the last change was seen.
    changed_at: TimeStamp,
    /// Sorted by address, without overlaps.
    loaded: Vec<Arc<ModuleImage>>,
    /// Without their unwind sections, the first to go first.
    unloaded: Vec<UnloadedModule>,
    forgotten: ForgottenModules,
    /// Those that the last change took away.
    gone: Vec<Arc<ModuleImage>>,
    /// Where a module may have been that came and went between the last change and the one before, unseen.
    unseen: Vec<Range<u64>>,
}

/// Where modules were of which there were too many.
#[derive(Clone, Debug, Default)]
struct ForgottenModules {
    /// Without overlaps.
    ranges: Vec<Range<u64>>,
    /// When the last of them was found gone.
    gone_by: TimeStamp,
}

fn is_same(one: &ModuleImage, other: &ModuleImage) -> bool {
    one.range == other.range && one.path == other.path && one.build_id == other.build_id
}

fn overlap(one: &ModuleImage, other: &ModuleImage) -> bool {
    one.range.start < other.range.end && other.range.start < one.range.end
}

impl ModuleTable {
    /// Looks whether anything was loaded or unloaded, and lists the modules anew if so; true then.
    pub(crate) fn refresh(&mut self) -> bool {
        self.seen_at = monotonic_now();
        if !self.loaded.is_empty() && module_changes() == self.changes {
            return false;
        }
        let (changes, images) = list_modules();
        let unloaded = changes.unloaded_since(self.changes);
        self.changes = changes;
        self.changed_at = monotonic_now();
        let before = std::mem::take(&mut self.loaded);
        for image in images {
            let known = before.iter().find(|old| is_same(old, &image));
            self.loaded.push(known.cloned().unwrap_or_else(|| Arc::new(image)));
        }
        let is_in = |list: &[Arc<ModuleImage>], one| list.iter().any(|other| Arc::ptr_eq(one, other));
        let gone: Vec<_> = before.iter().filter(|old| !is_in(&self.loaded, old)).cloned().collect();
        self.unseen.clear();
        if !before.is_empty() && unloaded > gone.len() as u64 {
            let new = self.loaded.iter().filter(|new| !is_in(&before, new));
            self.unseen.extend(new.map(|new| new.range.clone()));
        }
        gone.iter().for_each(|gone| self.add_unloaded(gone));
        self.gone = gone;
        true
    }

    fn add_unloaded(&mut self, gone: &ModuleImage) {
        // It is the same one all the time if nobody else was there meanwhile.
        let last_there = self.unloaded.iter().rposition(|old| overlap(&old.image, gone));
        let known = last_there.filter(|&index| is_same(&self.unloaded[index].image, gone));
        let image = match known {
            Some(index) => self.unloaded.remove(index).image,
            None => Arc::new(ModuleImage { unwind: None, ..gone.clone() }),
        };
        self.unloaded.push(UnloadedModule { image, gone_by: self.changed_at });
        if self.unloaded.len() > MAX_UNLOADED {
            let oldest = self.unloaded.remove(0);
            self.forgotten.add(&oldest);
        }
    }

    /// Whether this address may have meant something else when a capture was made. The table was looked at since.
    pub(super) fn is_doubtful(&self, address: u64, time: TimeStamp) -> bool {
        let gone_later = self.unloaded.iter().rev().take_while(|module| time < module.gone_by);
        gone_later.map(|module| &module.image.range).any(|range| range.contains(&address))
            || (time < self.changed_at && self.unseen.iter().any(|range| range.contains(&address)))
    }

    /// Whether anything may be doubtful in a capture of that time.
    pub(super) fn has_doubts(&self, time: TimeStamp) -> bool {
        time < self.changed_at && !(self.unloaded.is_empty() && self.unseen.is_empty())
    }

    /// Whether it was looked after that time what is loaded.
    pub(super) fn is_seen_after(&self, time: TimeStamp) -> bool {
        time < self.seen_at
    }

    /// Those that were unloaded, as far as others took their places.
    pub(crate) fn replaced(&self) -> ReplacedModules {
        let all = self.all();
        let loaded = self.loaded.iter();
        let images: Vec<_> = loaded.chain(self.unloaded.iter().map(|module| &module.image)).collect();
        let is_replaced = |one: &UnloadedModule| {
            images.iter().any(|other| overlap(&one.image, other) && !is_same(&one.image, other))
        };
        let replaced =
            self.unloaded.iter().filter(|module| is_replaced(module)).map(|module| ReplacedModule {
                image: Arc::clone(&module.image),
                gone_by: module.gone_by,
                is_back: all.iter().any(|now| is_same(&now.image, &module.image)),
            });
        ReplacedModules { modules: replaced.collect(), forgotten: self.forgotten.clone() }
    }

    /// The modules that the last refresh found gone.
    pub(super) fn gone(&self) -> &[Arc<ModuleImage>] {
        &self.gone
    }

    /// The module that this address lies in.
    pub(crate) fn find(&self, address: u64) -> Option<&Arc<ModuleImage>> {
        let after = self.loaded.partition_point(|module| module.range.start <= address);
        self.loaded.get(after.checked_sub(1)?).filter(|module| address < module.range.end)
    }

    /// All modules of the session, sorted by address and without overlaps: of two at the same place the one that is
    /// loaded now, or was last.
    pub(crate) fn all(&self) -> Vec<LoadedModule> {
        let mut all: Vec<LoadedModule> = Vec::new();
        let loaded = self.loaded.iter().map(|image| (image, false));
        let unloaded = self.unloaded.iter().rev().map(|module| (&module.image, true));
        for (image, unloaded) in loaded.chain(unloaded) {
            if !all.iter().any(|other| overlap(&other.image, image)) {
                all.push(LoadedModule { image: Arc::clone(image), unloaded });
            }
        }
        all.sort_by_key(|module| module.image.range.start);
        all
    }
}

impl ForgottenModules {
    fn add(&mut self, module: &UnloadedModule) {
        self.gone_by = module.gone_by;
        let mut hull = module.image.range.clone();
        let touching = |range: &mut Range<u64>| range.start < hull.end && hull.start < range.end;
        let touched: Vec<_> = self.ranges.extract_if(.., touching).collect();
        for range in touched {
            hull = hull.start.min(range.start)..hull.end.max(range.end);
        }
        self.ranges.push(hull);
    }
}

/// A module whose place another took later.
#[derive(Clone, Debug)]
pub(crate) struct ReplacedModule {
    pub(crate) image: Arc<ModuleImage>,
    gone_by: TimeStamp,
    /// Whether it took the place again, and was the last there.
    is_back: bool,
}

/// Modules whose places others took later, the first to go first.
#[derive(Clone, Default, Debug)]
pub(crate) struct ReplacedModules {
    modules: Vec<ReplacedModule>,
    forgotten: ForgottenModules,
}

/// What an address meant at some time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meant {
    /// What it means now.
    Same,
    /// Code of a module that was replaced, by its number.
    Replaced(usize),
    /// Code of a module that nobody remembers.
    Forgotten,
}

impl ReplacedModules {
    pub(crate) fn module(&self, number: usize) -> Option<&ReplacedModule> {
        self.modules.get(number)
    }

    /// What an address in a sample of that time meant.
    pub(crate) fn meaning(&self, address: u64, time: TimeStamp) -> Meant {
        let contains = |range: &Range<u64>| range.contains(&address);
        if time < self.forgotten.gone_by && self.forgotten.ranges.iter().any(contains) {
            return Meant::Forgotten;
        }
        let first = self.modules.partition_point(|module| module.gone_by <= time);
        let then = self.modules[first..].iter().position(|module| contains(&module.image.range));
        match then.map(|index| first + index) {
            Some(number) if !self.modules[number].is_back => Meant::Replaced(number),
            _ => Meant::Same,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_this_program_is_found_and_a_refresh_without_changes_is_none() {
        let mut table = ModuleTable::default();
        assert!(table.refresh());
        assert!(!table.refresh());
        let own = ModuleTable::refresh as fn(&mut ModuleTable) -> bool as usize as u64;
        let module = table.find(own).expect("this program");
        assert_eq!(module.path, std::env::current_exe().expect("path"));
        assert!(table.find(1).is_none() && table.find(u64::MAX).is_none());
        assert_eq!(table.all().len(), table.loaded.len());
    }

    fn image(name: &str, range: Range<u64>) -> Arc<ModuleImage> {
        let path = name.into();
        Arc::new(ModuleImage { path, bias: 0, range, build_id: Vec::new(), unwind: None, memory: None })
    }

    fn unload_at(table: &mut ModuleTable, image: &Arc<ModuleImage>, ns: u64) {
        table.changed_at = TimeStamp(ns);
        table.add_unloaded(image);
    }

    #[test]
    fn an_address_means_what_was_there_at_the_time() {
        let mut table = ModuleTable::default();
        let (a, b) = (image("a", 100..200), image("b", 150..250));
        for ns in [10, 20] {
            unload_at(&mut table, &a, ns);
        }
        assert_eq!(table.unloaded.len(), 1, "nobody was there meanwhile");
        unload_at(&mut table, &b, 30);
        table.loaded = vec![a];
        let replaced = table.replaced();
        let meant = |address, ns| replaced.meaning(address, TimeStamp(ns));
        assert_eq!([meant(160, 5), meant(160, 19), meant(160, 30), meant(160, 99)], [Meant::Same; 4]);
        assert_eq!([meant(160, 20), meant(240, 0), meant(240, 29)], [Meant::Replaced(1); 3]);
        assert_eq!([meant(99, 0), meant(250, 0)], [Meant::Same; 2]);
        assert_eq!(replaced.module(1).expect("b").image.path, std::path::Path::new("b"));
        assert!(table.is_doubtful(240, TimeStamp(29)) && !table.is_doubtful(240, TimeStamp(30)));
    }

    #[test]
    fn the_oldest_are_forgotten_and_that_is_known() {
        let mut table = ModuleTable::default();
        for ns in 1..=MAX_UNLOADED as u64 + 2 {
            unload_at(&mut table, &image(&format!("m{ns}"), 100 + ns % 7..200), ns);
        }
        let replaced = table.replaced();
        assert_eq!((table.unloaded.len(), table.forgotten.ranges.len()), (MAX_UNLOADED, 1));
        assert_eq!(replaced.meaning(150, TimeStamp(1)), Meant::Forgotten);
        assert_eq!(replaced.meaning(150, TimeStamp(2)), Meant::Replaced(0));
        assert_eq!(replaced.meaning(99, TimeStamp(1)), Meant::Same);
    }
}
