//! Looks up the addresses of one module in its files.

use std::path::PathBuf;
use std::sync::Arc;

use crate::platform::is_memory_available;
use crate::symbols::debug_information::{DebugInformation, ParsedFile, SplitFiles, SplitSections};
use crate::symbols::demangle::demangled;
use crate::symbols::module_files::{ModuleFiles, UnreadFile};
use crate::symbols::names::{AddressName, FrameName, SampledAddress, SymbolPlace};
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
        let is_incomplete = files.are_incomplete() || !has_ample_memory;
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

/// The names of one module.
pub(super) struct ModuleSymbols<'s, 'a> {
    bias: u64,
    /// The file with the most information first.
    files: Vec<DebugInformation<'s, 'a>>,
}

impl ModuleSymbols<'_, '_> {
    /// Calls `body` with the names in the files of a module with this load bias.
    pub(super) fn with_files<T>(
        files: &ModuleFiles,
        bias: u64,
        body: impl FnOnce(&ModuleSymbols<'_, '_>) -> T,
    ) -> T {
        let parsed = files.files.iter().filter_map(ParsedFile::parse);
        // Each refers to those before it.
        let parsed: Vec<ParsedFile<'_>> = parsed.collect();
        let max_split_files = parsed.iter().map(ParsedFile::max_split_files).sum();
        let split_files = SplitFiles::with_capacity(max_split_files);
        let split_sections = SplitSections::with_capacity(max_split_files);
        let files = parsed
            .iter()
            .map(|file| DebugInformation::new(file, &split_files, &split_sections));
        let symbols = ModuleSymbols {
            bias,
            files: files.collect(),
        };
        body(&symbols)
    }

    /// Returns whether debug information of the module was looked for in split files.
    pub(super) fn has_split_files(&self) -> bool {
        self.files.iter().any(DebugInformation::has_split_files)
    }

    /// Returns what the files say of an address. The result has no functions if they do not name it.
    pub(super) fn names_at(&self, address: u64, symbolicate: Symbolicate) -> AddressName {
        let in_file = address.wrapping_sub(self.bias);
        // First, because a symbol without a size in an earlier section seems to cover the entries.
        if let Some(mut entry) = self
            .files
            .iter()
            .find_map(|file| file.plt_entry_at(in_file))
        {
            entry.symbol = entry.symbol.map(|symbol| symbol.moved(self.bias));
            return entry;
        }
        let symbols = || self.files.iter().filter_map(|file| file.symbol_at(in_file));
        // A symbol without a size seems to cover all addresses up to the next one.
        let symbol = symbols()
            .find(|symbol| symbol.size() > 0)
            .or_else(|| symbols().next());
        let by_symbol = || {
            let names = symbol.map(|symbol| FrameName::name_only(&demangled(symbol.name())));
            names.into_iter().collect()
        };
        let has_all_symbols = || self.files.iter().any(DebugInformation::has_all_symbols);
        let functions = match symbolicate {
            // Reading the debug information would take longer than everything else, and name nothing
            // more.
            Symbolicate::NamesOnly if symbol.is_some() || has_all_symbols() => by_symbol(),
            Symbolicate::NamesOnly | Symbolicate::Full | Symbolicate::No => {
                let mut by_debug_information = self.files.iter().map(|file| file.names_at(in_file));
                by_debug_information
                    .find(|names| !names.is_empty())
                    .unwrap_or_else(by_symbol)
            }
        };
        let place = symbol.map(|symbol| SymbolPlace {
            start: symbol.address(),
            size: symbol.size(),
        });
        AddressName {
            functions,
            symbol: place.map(|place| place.moved(self.bias)),
        }
    }
}
