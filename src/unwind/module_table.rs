//! The modules of a session: those that are loaded, and those that were.

use std::sync::Arc;

use crate::platform::{ModuleChanges, ModuleImage, list_modules, module_changes};

/// A module of the session.
#[derive(Clone, Debug)]
pub(crate) struct LoadedModule {
    pub(crate) image: Arc<ModuleImage>,
    /// Whether it is gone, so that its addresses may mean something else by now.
    pub(crate) unloaded: bool,
}

/// All modules that samples of the session may lie in.
#[derive(Debug, Default)]
pub(crate) struct ModuleTable {
    changes: ModuleChanges,
    /// Sorted by address, without overlaps.
    loaded: Vec<Arc<ModuleImage>>,
    /// Without their unwind sections. One that comes and goes again and again stands here once.
    unloaded: Vec<Arc<ModuleImage>>,
    /// Those that the last change took away.
    gone: Vec<Arc<ModuleImage>>,
}

fn is_same(one: &ModuleImage, other: &ModuleImage) -> bool {
    one.range == other.range && one.path == other.path && one.build_id == other.build_id
}

impl ModuleTable {
    /// Looks whether anything was loaded or unloaded, and lists the modules anew if so; true then.
    pub(crate) fn refresh(&mut self) -> bool {
        if !self.loaded.is_empty() && module_changes() == self.changes {
            return false;
        }
        let (changes, images) = list_modules();
        self.changes = changes;
        let before = std::mem::take(&mut self.loaded);
        for image in images {
            let known = before.iter().find(|old| is_same(old, &image));
            self.loaded.push(known.cloned().unwrap_or_else(|| Arc::new(image)));
        }
        let is_loaded = |old: &Arc<ModuleImage>| self.loaded.iter().any(|new| Arc::ptr_eq(old, new));
        self.gone = before.into_iter().filter(|old| !is_loaded(old)).collect();
        for gone in &self.gone {
            self.unloaded.retain(|old| !is_same(old, gone));
            self.unloaded.push(Arc::new(ModuleImage { unwind: None, ..ModuleImage::clone(gone) }));
        }
        true
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
        let unloaded = self.unloaded.iter().rev().map(|image| (image, true));
        for (image, unloaded) in loaded.chain(unloaded) {
            let overlaps = |other: &LoadedModule| {
                other.image.range.start < image.range.end && image.range.start < other.image.range.end
            };
            if !all.iter().any(overlaps) {
                all.push(LoadedModule { image: Arc::clone(image), unloaded });
            }
        }
        all.sort_by_key(|module| module.image.range.start);
        all
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
}
