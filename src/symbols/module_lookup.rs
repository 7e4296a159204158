//! Looks up the addresses of one module in its files.

use std::path::PathBuf;
use std::sync::Arc;

use crate::platform::is_memory_available;
use crate::symbols::module_files::{ModuleFiles, UnreadFile};
use crate::symbols::module_symbols::ModuleSymbols;
use crate::symbols::names::{AddressName, SampledAddress};
use crate::types::Symbolicate;
use crate::unwind::LoadedModule;
use crate::util::ProgressCounter;

/// Memory that looking up an address may take, in bytes: the debug information of a compilation
/// unit.
const LOOKUP_BYTES: usize = 64 << 20;
/// Memory with which the addresses of a module are looked up without a check, in bytes.
pub(super) const AMPLE_BYTES: usize = 1 << 30;

/// Addresses of one module that are to be looked up. Any thread of the profiler may do it.
#[derive(Clone, Debug)]
pub(super) struct ModuleLookup {
    pub(super) module: LoadedModule,
    /// In ascending order, so that each compilation unit is read once.
    pub(super) addresses: Vec<SampledAddress>,
    pub(super) symbolicate: Symbolicate,
    /// Counts the addresses that were looked up, for all modules together.
    pub(super) progress: Arc<ProgressCounter>,
}

/// What the files of one module say.
#[derive(Debug)]
pub(super) struct ModuleNames {
    pub(super) module: LoadedModule,
    pub(super) names: Vec<(SampledAddress, AddressName)>,
    /// Addresses without a name in the files.
    pub(super) unnamed: Vec<SampledAddress>,
    /// Whether other sources may have names for `unnamed`: see [`ModuleFiles::may_fall_back`].
    pub(super) may_fall_back: bool,
    /// Number of addresses without a name for lack of memory.
    pub(super) unnamed_for_memory: u64,
    pub(super) unread: Option<UnreadFile>,
    /// The module's path, if its files could not all be read.
    pub(super) incomplete: Option<PathBuf>,
}

impl ModuleLookup {
    /// Looks up all addresses. Opens the files of the module, and closes them again.
    pub(super) fn run(self) -> ModuleNames {
        let files = ModuleFiles::open(&self.module);
        ModuleSymbols::with_files(&files, self.module.image.bias, |symbols| {
            self.names_in(&files, symbols)
        })
    }

    /// Looks up all addresses in the open files of the module.
    pub(super) fn names_in(
        self,
        files: &ModuleFiles,
        symbols: &ModuleSymbols<'_, '_>,
    ) -> ModuleNames {
        let has_ample_memory = is_memory_available(AMPLE_BYTES);
        let mut names = Vec::new();
        let mut unnamed = Vec::new();
        let mut unnamed_for_memory = 0;
        for &address in &self.addresses {
            self.progress.count(1);
            if !has_ample_memory && !is_memory_available(LOOKUP_BYTES) {
                unnamed_for_memory += 1;
                continue;
            }
            let found = symbols.names_at(address.lookup_address(), self.symbolicate);
            if !found.functions.is_empty() {
                names.push((address, found));
            } else if files.lacks_memory {
                unnamed_for_memory += 1;
            } else {
                unnamed.push(address);
            }
        }
        let is_incomplete = files.lacks_memory || files.unread.is_some() || !has_ample_memory;
        ModuleNames {
            names,
            unnamed,
            may_fall_back: files.may_fall_back,
            unnamed_for_memory,
            unread: files.unread.clone(),
            incomplete: is_incomplete.then(|| self.module.image.path.clone()),
            module: self.module,
        }
    }
}
