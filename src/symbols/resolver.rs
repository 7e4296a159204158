//! Looks up addresses in the files of their modules.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::platform::{ModuleImage, is_memory_available, share_jobs};
use crate::symbols::fallback::{free_backtrace_files, may_use_backtrace, names_by_backtrace};
use crate::symbols::mapped_symbols::MappedSymbols;
use crate::symbols::module_files::UnreadFile;
use crate::symbols::module_lookup::{AMPLE_BYTES, ModuleLookup, ModuleNames};
use crate::symbols::names::{AddressName, AddressNames, FrameName, SampledAddress};
use crate::symbols::open_modules::OpenModules;
use crate::types::Symbolicate;
use crate::unwind::{CallFrames, LoadedModule, NamedCode, module_at};
use crate::util::{ProgressCounter, ProgressLocation, ProgressLogger, SharedSort};

/// Name of a signal trampoline without a symbol. The C library's is one, if its file is stripped.
const SIGNAL_TRAMPOLINE: &str = "signal trampoline";

/// Resolves addresses of this process to names.
#[doc(alias = "ProfilerCodeAddressService")]
pub(crate) struct CodeAddressService<'a> {
    /// Sorted by address.
    modules: &'a [LoadedModule],
    mapped: MappedSymbols,
    generated: &'a NamedCode,
    symbolicate: Symbolicate,
    /// Maximum number of threads that look up addresses, with the calling one.
    max_threads: usize,
    /// Looks up the addresses instead of these threads.
    open_modules: Option<&'a OpenModules>,
    /// Whether `backtrace` may be asked; determined when it is first needed.
    may_fall_back: OnceCell<bool>,
    unread: RefCell<Vec<UnreadFile>>,
    /// Paths of the modules whose files could not all be read.
    incomplete: RefCell<Vec<PathBuf>>,
    /// Number of addresses without a name for lack of memory.
    unnamed_for_memory: Cell<u64>,
}

impl<'a> CodeAddressService<'a> {
    pub(crate) fn new(
        modules: &'a [LoadedModule],
        generated: &'a NamedCode,
        symbolicate: Symbolicate,
    ) -> Self {
        Self {
            modules,
            mapped: MappedSymbols::of(modules),
            generated,
            symbolicate,
            max_threads: 1,
            open_modules: None,
            may_fall_back: OnceCell::new(),
            unread: RefCell::default(),
            incomplete: RefCell::default(),
            unnamed_for_memory: Cell::new(0),
        }
    }

    /// Sets how many threads may look up addresses, with the calling one. Default: 1.
    pub(crate) fn on_threads(mut self, max_threads: usize) -> Self {
        self.max_threads = max_threads;
        self
    }

    /// Lets a thread that keeps the files of modules open look up the addresses, one module after the
    /// other.
    pub(crate) fn in_open_modules(mut self, open_modules: Option<&'a OpenModules>) -> Self {
        self.open_modules = open_modules;
        self
    }

    /// Returns the number of addresses that have got no name for lack of memory.
    pub(crate) fn unnamed_for_memory(&self) -> u64 {
        self.unnamed_for_memory.get()
    }

    /// Returns the names of these addresses. An address without a name is absent from the result.
    ///
    /// Reads the debug information of every module concerned, each module once, and frees its
    /// memory. Cost: some ms to some seconds.
    pub(crate) fn resolve(&self, addresses: Vec<SampledAddress>) -> AddressNames {
        let progress = ProgressLogger::unwatched().counter(0, ProgressLocation::Names);
        self.resolve_with_progress(addresses, &Arc::new(progress))
    }

    /// Resolves addresses like [`Self::resolve`], and reports the progress.
    pub(crate) fn resolve_with_progress(
        &self,
        mut addresses: Vec<SampledAddress>,
        progress: &Arc<ProgressCounter>,
    ) -> AddressNames {
        addresses.sort_unstable();
        addresses.dedup();
        let mut names = AddressNames::new();
        let mut by_module: BTreeMap<usize, Vec<SampledAddress>> = BTreeMap::new();
        for address in addresses {
            match self.name_source(address) {
                NameSource::Unknown => {}
                NameSource::Named(name) => {
                    names.insert(address, AddressName::without_place(vec![name]));
                }
                NameSource::ModuleFile(index) => by_module.entry(index).or_default().push(address),
            }
        }
        let helpers = self.helpers_for(by_module.len());
        let lookups = by_module
            .into_iter()
            .map(|(index, addresses)| ModuleLookup {
                module: self.modules[index].clone(),
                addresses,
                symbolicate: self.symbolicate,
                progress: Arc::clone(progress),
            });
        let mut lookups: Vec<ModuleLookup> = lookups.collect();
        // The longest first, so that no thread begins one when the others are done.
        lookups.shared_sort_by_key(|lookup| std::cmp::Reverse(lookup.addresses.len()));
        let found = match self.open_modules {
            Some(open) => lookups.into_iter().map(|job| open.look_up(job)).collect(),
            None => share_jobs(lookups, helpers, ModuleLookup::run),
        };
        for of_module in found {
            self.add_names(of_module, &mut names);
        }
        if self.may_fall_back.get() == Some(&true) {
            free_backtrace_files();
        }
        names
    }

    /// Returns how many threads may help to look up the addresses of this many modules; 0 without
    /// memory for all of them at the same time.
    fn helpers_for(&self, modules: usize) -> usize {
        let threads = self.max_threads.min(modules).max(1);
        let helpers = threads - 1;
        let has_memory = || is_memory_available(AMPLE_BYTES.saturating_mul(threads));
        if helpers > 0 && has_memory() {
            helpers
        } else {
            0
        }
    }

    /// Returns the files without names in which addresses were looked up so far.
    pub(crate) fn take_unread_files(&self) -> Vec<UnreadFile> {
        self.unread.take()
    }

    /// Returns the paths of the modules whose files could not all be read.
    pub(crate) fn take_incomplete(&self) -> Vec<PathBuf> {
        self.incomplete.take()
    }

    /// Adds what the files of a module say, and names from elsewhere for the other addresses.
    fn add_names(&self, of_module: ModuleNames, names: &mut AddressNames) {
        names.extend(of_module.names);
        for address in of_module.unnamed {
            let image = &of_module.module.image;
            let functions =
                self.names_without_file(address.lookup_address(), image, of_module.may_fall_back);
            if !functions.is_empty() {
                names.insert(address, AddressName::without_place(functions));
            }
        }
        self.unnamed_for_memory
            .set(self.unnamed_for_memory.get() + of_module.unnamed_for_memory);
        self.incomplete.borrow_mut().extend(of_module.incomplete);
        self.unread.borrow_mut().extend(of_module.unread);
    }

    fn name_source(&self, address: SampledAddress) -> NameSource {
        let address = address.lookup_address();
        if let Some(code) = self.generated.find(address) {
            return NameSource::Named(FrameName::name_only(&code.name));
        }
        let Some(index) = module_at(self.modules, address) else {
            return NameSource::Unknown;
        };
        match self.mapped.name_at(address) {
            Some(name) => NameSource::Named(FrameName::name_only(name)),
            None => NameSource::ModuleFile(index),
        }
    }

    /// Returns the functions at an address for which the module's files have no name.
    fn names_without_file(
        &self,
        address: u64,
        image: &ModuleImage,
        may_fall_back: bool,
    ) -> Vec<FrameName> {
        if CallFrames::of(image).is_some_and(|frames| frames.is_signal_trampoline(address)) {
            return vec![FrameName::name_only(SIGNAL_TRAMPOLINE)];
        }
        if may_fall_back && *self.may_fall_back.get_or_init(may_use_backtrace) {
            names_by_backtrace(address)
        } else {
            Vec::new()
        }
    }
}

/// Where the name of an address comes from.
enum NameSource {
    /// The address lies in no known code.
    Unknown,
    /// Generated code, or a module without a file, which have the name themselves.
    Named(FrameName),
    /// The files of the module with this index.
    ModuleFile(usize),
}

#[cfg(test)]
#[path = "resolver_tests.rs"]
mod tests;
