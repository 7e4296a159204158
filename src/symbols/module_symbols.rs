//! The names in the files of a module: its debug information, its symbol table, and a separate file
//! of debug information if the system has one.
//!
//! A file that differs from the one that was loaded, because it was rebuilt, provides no names.

use std::io;
use std::path::{Path, PathBuf};

use addr2line::Loader;
use object::{Object, ReadCache};

use crate::platform::{SharedFile, on_own_descriptors};
use crate::symbols::demangle::demangled;
use crate::symbols::names::FrameName;
use crate::unwind::LoadedModule;

/// Directory in which distributions put debug information, by build id.
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";
/// Path that opens this program even after its file was renamed or removed.
const OWN_FILE: &str = "/proc/self/exe";

/// The names of one module.
pub(super) struct ModuleSymbols {
    bias: u64,
    /// The file with the most information first.
    files: Vec<Loader>,
    /// Whether the module is loaded, and its file matches or cannot be opened.
    may_fall_back: bool,
}

impl ModuleSymbols {
    /// Opens the files of a module, except those that are missing or do not match the module. They
    /// are open for some ms, on another thread, and then mapped.
    pub(super) fn open(module: &LoadedModule) -> Self {
        let module = module.clone();
        on_own_descriptors(move || Self::read(&module))
    }

    fn read(module: &LoadedModule) -> Self {
        let image = &module.image;
        let own_file = if image.is_executable {
            Path::new(OWN_FILE)
        } else {
            &image.path
        };
        let is_matching = |file: SharedFile| match image.build_id.is_empty() {
            // Without a build id, only a module that is still loaded is known to match its file.
            true => !module.unloaded,
            false => build_id_of(file).as_deref() == Some(&image.build_id),
        };
        let may_fall_back = !module.unloaded
            && match SharedFile::open_regular(own_file) {
                Ok(file) => is_matching(file),
                // `backtrace` would open a pipe, too, and wait for a writer.
                Err(error) => error.kind() != io::ErrorKind::InvalidInput,
            };
        let paths = debug_file(&image.build_id)
            .into_iter()
            .chain([own_file.to_owned()]);
        let files = paths
            .filter(|path| SharedFile::open_regular(path).is_ok_and(is_matching))
            .filter_map(|path| Loader::new(path).ok());
        Self {
            bias: image.bias,
            files: files.collect(),
            may_fall_back,
        }
    }

    /// Returns whether `backtrace` may be asked for an address without a name.
    pub(super) fn may_fall_back(&self) -> bool {
        self.may_fall_back
    }

    /// Returns the functions at an address, the innermost inlined one first.
    pub(super) fn names_at(&self, address: u64) -> Vec<FrameName> {
        let in_file = address.wrapping_sub(self.bias);
        let by_debug_information = self
            .files
            .iter()
            .map(|file| names_in_debug_information(file, in_file));
        if let Some(names) = by_debug_information
            .into_iter()
            .find(|names| !names.is_empty())
        {
            return names;
        }
        let symbol = self.files.iter().find_map(|file| file.find_symbol(in_file));
        symbol
            .map(|symbol| FrameName {
                function: demangled(symbol),
                file: None,
                line: None,
            })
            .into_iter()
            .collect()
    }
}

fn names_in_debug_information(file: &Loader, address: u64) -> Vec<FrameName> {
    let mut names = Vec::new();
    let Ok(mut frames) = file.find_frames(address) else {
        return names;
    };
    while let Ok(Some(frame)) = frames.next() {
        let name = frame
            .function
            .as_ref()
            .and_then(|function| function.raw_name().ok());
        // The outermost frame may have only a location; its name then comes from the symbol table.
        let function = match name {
            Some(name) => demangled(&name),
            None => match file.find_symbol(address) {
                Some(symbol) => demangled(symbol),
                None => continue,
            },
        };
        let location = frame.location.as_ref();
        names.push(FrameName {
            function,
            file: location
                .and_then(|location| location.file)
                .map(str::to_owned),
            line: location.and_then(|location| location.line),
        });
    }
    names
}

fn debug_file(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = Path::new(DEBUG_FILES)
        .join(format!("{first:02x}"))
        .join(format!("{rest}.debug"));
    path.exists().then_some(path)
}

fn build_id_of(file: SharedFile) -> Option<Vec<u8>> {
    let cache = ReadCache::new(file);
    let file = object::File::parse(&cache).ok()?;
    file.build_id().ok()?.map(<[u8]>::to_vec)
}
