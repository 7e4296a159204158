//! Looks up the addresses of one module in its files. A thread may keep the files of modules open
//! from one profile to the next.
//!
//! A program that is profiled in windows has a few new addresses in each. Parsing the files of
//! their modules again would take most of the time of a window, so [`OpenModules`] keeps them open.
//!
//! What the tables of a file say borrows from the file, so both live on the stack of that thread:
//! each open module is a call of [`Opening::serve`] within the call for the module before.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::platform::{
    ModuleImage, Receiver, Sender, channel, is_memory_available, prepare_to_wait_as_loader_call,
    spawn_profiler_thread,
};
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
    fn names_in(self, files: &ModuleFiles, symbols: &ModuleSymbols<'_, '_>) -> ModuleNames {
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
struct ModuleSymbols<'s, 'a> {
    bias: u64,
    /// The file with the most information first.
    files: Vec<DebugInformation<'s, 'a>>,
}

impl ModuleSymbols<'_, '_> {
    /// Calls `body` with the names in the files of a module with this load bias.
    fn with_files<T>(
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
    fn has_split_files(&self) -> bool {
        self.files.iter().any(DebugInformation::has_split_files)
    }

    /// Returns what the files say of an address. The result has no functions if they do not name it.
    fn names_at(&self, address: u64, symbolicate: Symbolicate) -> AddressName {
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

/// Maximum number of modules that are open.
const MAX_MODULES: usize = 32;
/// Time after which all modules are closed. So the memory holds the units that were needed in this
/// time, and not all that ever were.
const MAX_TIME: Duration = Duration::from_secs(600);

/// A thread that looks up addresses, and keeps the files of their modules open. Dropping the value
/// ends the thread.
#[derive(Debug)]
pub(crate) struct OpenModules {
    requests: Sender<Request>,
}

#[derive(Debug)]
struct Request {
    lookup: ModuleLookup,
    answer: Sender<ModuleNames>,
}

impl OpenModules {
    /// Starts the thread.
    ///
    /// # Errors
    /// The error of `pthread_create`.
    pub(crate) fn start() -> io::Result<Self> {
        let (requests, received) = channel();
        let run = move || {
            prepare_to_wait_as_loader_call();
            serve_all(&received);
        };
        spawn_profiler_thread(c"ProfilerNames", run)?;
        Ok(Self { requests })
    }

    /// Looks up addresses of one module on the thread, and waits for the names. If the thread has
    /// ended, the calling one looks them up.
    pub(super) fn look_up(&self, lookup: ModuleLookup) -> ModuleNames {
        let (answer, answered) = channel();
        let request = Request {
            lookup: lookup.clone(),
            answer,
        };
        let is_sent = self.requests.send(request);
        let names = is_sent.then(|| answered.receive()).flatten();
        names.unwrap_or_else(|| lookup.run())
    }
}

/// A module with open files, and the modules that were opened before it.
struct Opening<'m> {
    image: Arc<ModuleImage>,
    files: &'m ModuleFiles,
    look_up: &'m dyn Fn(ModuleLookup) -> Answer,
    before: Option<&'m Opening<'m>>,
    /// Number of open modules.
    count: usize,
}

/// The names of addresses, and whether the files may stay open.
struct Answer {
    names: ModuleNames,
    may_stay_open: bool,
}

/// Why a module was closed.
enum Closed {
    /// Its files are not to be kept.
    Module,
    /// All modules are to be closed. Then the request, if any, is answered.
    All(Option<Request>),
}

/// Answers requests until the other end is dropped.
fn serve_all(requests: &Receiver<Request>) {
    let mut next = requests.receive();
    while let Some(request) = next {
        let until = Instant::now() + MAX_TIME;
        next = match open(None, request, requests, until) {
            Closed::All(Some(request)) => Some(request),
            Closed::All(None) | Closed::Module => requests.receive(),
        };
    }
}

/// Opens the module of a request and answers the request, then those that follow until this time.
fn open(
    before: Option<&Opening<'_>>,
    request: Request,
    requests: &Receiver<Request>,
    until: Instant,
) -> Closed {
    let Request { lookup, answer } = request;
    let image = Arc::clone(&lookup.module.image);
    let files = ModuleFiles::open(&lookup.module);
    ModuleSymbols::with_files(&files, image.bias, |symbols| {
        let look_up = |lookup: ModuleLookup| Answer {
            names: lookup.names_in(&files, symbols),
            // A file of split debug information is looked for once, and not watched.
            may_stay_open: !files.are_incomplete() && !symbols.has_split_files(),
        };
        let first = look_up(lookup);
        answer.send(first.names);
        drop(answer);
        if !first.may_stay_open {
            return Closed::Module;
        }
        let opening = Opening {
            image,
            files: &files,
            look_up: &look_up,
            before,
            count: before.map_or(0, |before| before.count) + 1,
        };
        opening.serve(requests, until)
    })
}

impl Opening<'_> {
    /// Answers requests until this module is to be closed.
    fn serve(&self, requests: &Receiver<Request>, until: Instant) -> Closed {
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            let Some(request) = requests.receive_within(rest) else {
                return Closed::All(None);
            };
            if rest.is_zero() || !is_memory_available(AMPLE_BYTES) {
                return Closed::All(Some(request));
            }
            match self.find(&request.lookup.module) {
                Some(module) if module.files.are_unchanged() => {
                    let Request { lookup, answer } = request;
                    let found = (module.look_up)(lookup);
                    answer.send(found.names);
                    if !found.may_stay_open {
                        return Closed::All(None);
                    }
                }
                None if self.count < MAX_MODULES => {
                    if let Closed::All(request) = open(Some(self), request, requests, until) {
                        return Closed::All(request);
                    }
                }
                Some(_) | None => return Closed::All(Some(request)),
            }
        }
    }

    /// Returns a module with the same files at the same place, if it is open.
    fn find(&self, module: &LoadedModule) -> Option<&Self> {
        let image = &module.image;
        let is_same = self.image.path == image.path
            && self.image.build_id == image.build_id
            && self.image.bias == image.bias;
        // Without a build id, a module that was loaded later may be another one.
        match is_same && !image.build_id.is_empty() {
            true => Some(self),
            false => self.before?.find(module),
        }
    }
}
