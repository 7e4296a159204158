//! Modules whose files stay open from one profile to the next.
//!
//! A program that is profiled in windows has a few new addresses in each. Parsing the files of
//! their modules again would take most of the time of a window, so a thread keeps the files open.
//!
//! What the tables of a file say borrows from the file, so both live on the stack of that thread:
//! each open module is a call of [`Opening::serve`] within the call for the module before.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::platform::{
    ModuleImage, Receiver, Sender, channel, is_memory_available, prepare_to_wait_as_loader_call,
    spawn_profiler_thread
};
use crate::symbols::module_files::ModuleFiles;
use crate::symbols::module_lookup::{AMPLE_BYTES, ModuleLookup, ModuleNames, ModuleSymbols};
use crate::unwind::LoadedModule;

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
