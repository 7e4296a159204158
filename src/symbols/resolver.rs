//! Looks up addresses in the files of their modules, and asks the `backtrace` crate for those
//! without a name there.
//!
//! The `backtrace` crate opens a module by the path that the loader reports, whatever its length.
//! It follows the links to separate debug information that a stripped file contains.
//!
//! The crate lists the modules on its first use in the process and keeps that list. After a module
//! was unloaded, an address may lie in a module that took its place, and the crate would look it up
//! in the wrong file. So the crate is asked only in a process that has never unloaded a module:
//! there its list may lack modules, but contains no wrong one.
//!
//! The crate has a lock, which the application's own backtraces take, too. A fork does not wait for
//! it, so the child may find it held for ever, by a thread that exists only in the parent. For that
//! reason the crate is not asked in the child. The crate holds its lock while it lists the modules.
//! A thread of the application may hold the loader's lock during that time, and ask for a profile.
//! That thread waits for the list only for a limited time.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crate::platform::{ModuleChanges, is_memory_available, module_changes, share_jobs};
use crate::symbols::demangle::demangled;
use crate::symbols::module_files::UnreadFile;
use crate::symbols::module_lookup::{AMPLE_BYTES, ModuleLookup, ModuleNames, OpenModules};
use crate::symbols::names::{AddressName, AddressNames, FrameName, SampledAddress};
use crate::symbols::symbol_tables::MappedSymbols;
use crate::types::Symbolicate;
use crate::unwind::{CallFrames, LoadedModule, NamedCode, module_at};
use crate::util::{ProgressCounter, ProgressLocation, ProgressLogger, SharedSort, is_forked_child};

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
            let at = address.lookup_address();
            let module = module_at(self.modules, at);
            // Generated code, and a module without a file, have the name themselves.
            let generated = self.generated.find(at).map(|code| &*code.name);
            let name = generated.or_else(|| module.and_then(|_| self.mapped.name_at(at)));
            match (name, module) {
                (Some(name), _) => {
                    let functions = vec![FrameName::name_only(name)];
                    names.insert(address, AddressName::without_place(functions));
                }
                (None, Some(index)) => by_module.entry(index).or_default().push(address),
                (None, None) => {}
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
            // Frees the debug information that `backtrace` keeps.
            backtrace::clear_symbol_cache();
        }
        names
    }

    /// Returns how many threads may help to look up the addresses of this many modules; 0 without
    /// memory for all of them at the same time.
    fn helpers_for(&self, modules: usize) -> usize {
        let threads = self.max_threads.min(modules).max(1);
        if threads > 1 && is_memory_available(AMPLE_BYTES.saturating_mul(threads)) {
            threads - 1
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
            let at = address.lookup_address();
            let frames = CallFrames::of(&of_module.module.image);
            let functions = if frames.is_some_and(|frames| frames.is_signal_trampoline(at)) {
                vec![FrameName::name_only(SIGNAL_TRAMPOLINE)]
            } else if of_module.may_fall_back && *self.may_fall_back.get_or_init(may_use_backtrace)
            {
                names_by_backtrace(at)
            } else {
                Vec::new()
            };
            if !functions.is_empty() {
                names.insert(address, AddressName::without_place(functions));
            }
        }
        self.unnamed_for_memory
            .set(self.unnamed_for_memory.get() + of_module.unnamed_for_memory);
        self.incomplete.borrow_mut().extend(of_module.incomplete);
        self.unread.borrow_mut().extend(of_module.unread);
    }
}

/// Maximum time that a thread waits while another one has the crate list the modules.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// Time between two checks of a waiting thread.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Returns whether the crate may be asked: no module was ever unloaded, the process is not the
/// child of a fork, and the crate has its list of modules.
fn may_use_backtrace() -> bool {
    let (_, unloaded) = module_changes().since(ModuleChanges::default());
    unloaded == 0 && !is_forked_child() && has_listed_modules()
}

/// Has the crate list the modules, on the first call. Returns false if another thread has begun
/// that and does not get the loader's lock.
fn has_listed_modules() -> bool {
    const NOT_YET: u8 = 0;
    const BEGUN: u8 = 1;
    const DONE: u8 = 2;
    static STAGE: AtomicU8 = AtomicU8::new(NOT_YET);
    let begun = STAGE.compare_exchange(NOT_YET, BEGUN, Ordering::Acquire, Ordering::Acquire);
    if begun.is_ok() {
        // No module has this address.
        backtrace::resolve(ptr::without_provenance_mut(1), |_| ());
        STAGE.store(DONE, Ordering::Release);
        return true;
    }
    let end = Instant::now() + MAX_WAIT;
    while STAGE.load(Ordering::Acquire) == BEGUN && Instant::now() < end {
        std::thread::sleep(POLL_INTERVAL);
    }
    STAGE.load(Ordering::Acquire) == DONE
}

/// Returns the functions at an address within an instruction, the innermost inlined one first.
fn names_by_backtrace(address: u64) -> Vec<FrameName> {
    let mut names = Vec::new();
    // The crate expects a return address, and subtracts one byte.
    let return_address = ptr::without_provenance_mut(address as usize + 1);
    backtrace::resolve(return_address, |symbol| {
        if let Some(name) = symbol.name() {
            names.push(FrameName {
                function: demangled(&String::from_utf8_lossy(name.as_bytes())),
                file: symbol
                    .filename()
                    .map(|path| path.to_string_lossy().into_owned()),
                line: symbol.lineno(),
                column: symbol.colno(),
            });
        }
    });
    names
}

/// Returns the functions at each of these code addresses, the innermost inlined one first. An
/// address without a name is absent. For `cargo peers symbolicate`, without a session.
///
/// Lists the modules and reads their files, as a profile does that is saved for the first time.
#[cfg(feature = "unwind_benchmark")]
pub fn resolve_addresses(addresses: &[u64], symbolicate: Symbolicate) -> Vec<(u64, Vec<String>)> {
    let mut table = crate::unwind::ModuleTable::default();
    table.refresh();
    let modules = table.all();
    let sampled = addresses.iter().map(|&address| SampledAddress {
        address: crate::types::CodeAddress::new(address),
        is_return_address: false,
    });
    let names = CodeAddressService::new(&modules, &NamedCode::default(), symbolicate)
        .resolve(sampled.collect());
    let functions_of = |(address, name): (SampledAddress, AddressName)| {
        let functions = name.functions.into_iter().map(|name| name.function);
        (address.address.get(), functions.collect())
    };
    names.into_iter().map(functions_of).collect()
}

#[cfg(test)]
#[path = "resolver_tests.rs"]
mod tests;
