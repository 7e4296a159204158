//! The names in a module's files: its debug information, its symbol table, and a separate file of the former that the
//! system has.
//!
//! A file that is not the one that was loaded, since it was built anew, names nothing.

use std::fs::File;
use std::path::{Path, PathBuf};

use addr2line::Loader;
use object::{Object, ReadCache};

use crate::symbols::demangle::demangled;
use crate::symbols::resolver::FrameName;
use crate::unwind::LoadedModule;

/// Where distributions put debug information, by build id.
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";
/// It opens this program also when its file was renamed or removed.
const OWN_FILE: &str = "/proc/self/exe";

/// The names of one module.
pub(super) struct ModuleSymbols {
    bias: u64,
    /// The richest first.
    files: Vec<Loader>,
}

impl ModuleSymbols {
    /// Opens the files of a module; those that are not there, or are not its, are left out.
    pub(super) fn open(module: &LoadedModule) -> Self {
        let image = &module.image;
        let own = if image.is_executable {
            Path::new(OWN_FILE)
        } else {
            &image.path
        };
        let is_its = |path: &Path| match image.build_id.is_empty() {
            // Nothing tells whether the file is still the one that was loaded but that it still is.
            true => !module.unloaded,
            false => build_id_of(path).as_deref() == Some(&image.build_id),
        };
        let paths = debug_file(&image.build_id)
            .into_iter()
            .chain([own.to_owned()]);
        let files = paths
            .filter(|path| is_its(path))
            .filter_map(|path| Loader::new(path).ok());
        Self {
            bias: image.bias,
            files: files.collect(),
        }
    }

    /// The functions at an address, innermost inlined one first.
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
        // The outermost may have a place alone; its symbol has its name.
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

fn build_id_of(path: &Path) -> Option<Vec<u8>> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    file.build_id().ok()?.map(<[u8]>::to_vec)
}
