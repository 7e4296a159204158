//! The files with the names of a module: its own file, and a separate debug file if the system has
//! one. Each may come with a package of split debug information and a supplementary file. A module's
//! own file may also contain a compressed file with more symbols.
//!
//! A file that differs from the one that was loaded, because it was rebuilt, provides no names.

use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use object::Object as _;

use crate::platform::{
    FileMapping, is_memory_available, is_out_of_descriptors, on_own_descriptors,
};
use crate::symbols::mini_debug_info::mini_debug_info;
use crate::symbols::object_file::ObjectFile;
use crate::symbols::separate_files::{build_id_of, find_debug_file, find_supplementary_file};
use crate::unwind::LoadedModule;

/// Path that opens this program even after its file was renamed or removed.
const OWN_FILE: &str = "/proc/thread-self/exe";

/// The mapped files of one module.
pub(super) struct ModuleFiles {
    /// The file with the most information first.
    pub(super) files: Vec<SymbolFile>,
    /// Whether the module is loaded, and its file cannot be opened.
    pub(super) may_fall_back: bool,
    /// Whether names may be missing because a file was left out for lack of memory.
    pub(super) lacks_memory: bool,
    /// The module's own file, if it provides no names.
    pub(super) unread: Option<UnreadFile>,
}

/// A file with symbols and debug information.
pub(super) struct SymbolFile {
    pub(super) main: FileContent,
    /// The package (`.dwp`) in the folder of the file.
    pub(super) package: Option<FileMapping>,
    /// The supplementary file, with what several files of debug information have in common.
    pub(super) supplementary: Option<FileMapping>,
}

/// The content of a file with symbols.
pub(super) enum FileContent {
    Mapped(FileMapping),
    /// It was compressed in another file.
    Decompressed(Vec<u8>),
}

impl Deref for FileContent {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            FileContent::Mapped(file) => file,
            FileContent::Decompressed(bytes) => bytes,
        }
    }
}

/// A module's file that provides no names, so that functions stay unnamed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct UnreadFile {
    pub(crate) path: PathBuf,
    pub(crate) reason: String,
    /// Whether the file is there, but the process had no free descriptor.
    pub(crate) lacks_descriptor: bool,
}

/// Returns whether there is memory to read the symbols of a mapped file. Without it, the libraries
/// that read the file would end the process.
pub(super) fn has_memory_for(file: &[u8]) -> bool {
    /// Memory in addition to a multiple of the file, in bytes: glibc reserves 64 MiB for the first
    /// allocation of a thread.
    const OTHER_BYTES: usize = 64 << 20;
    /// The symbols, and the tables of the compilation units.
    const FACTOR: usize = 2;
    let of_file = file.len().saturating_mul(FACTOR);
    is_memory_available(of_file.saturating_add(OTHER_BYTES))
}

impl ModuleFiles {
    /// Maps the files of a module, except missing files and files that do not match the module. The
    /// files are open for a moment, on another thread.
    pub(super) fn open(module: &LoadedModule) -> Self {
        let module = module.clone();
        on_own_descriptors(move || Self::read(&module))
    }

    /// Returns whether the next attempt may find more names, because a file could not be read.
    pub(super) fn are_incomplete(&self) -> bool {
        self.lacks_memory || self.unread.is_some()
    }

    /// Returns whether no file was written to since it was mapped. A file that was replaced or
    /// removed stays mapped as it was.
    pub(super) fn are_unchanged(&self) -> bool {
        let mapped = self.files.iter().flat_map(|file| {
            let main = match &file.main {
                FileContent::Mapped(mapping) => Some(mapping),
                FileContent::Decompressed(_) => None,
            };
            [main, file.package.as_ref(), file.supplementary.as_ref()]
        });
        mapped.flatten().all(FileMapping::is_unchanged)
    }

    fn read(module: &LoadedModule) -> Self {
        let image = &module.image;
        let own_path = if image.is_executable {
            Path::new(OWN_FILE)
        } else {
            &image.path
        };
        let is_matching = |file: &FileMapping| match image.build_id.is_empty() {
            // Without a build id, only a module that is still loaded is known to match its file.
            true => !module.unloaded,
            false => build_id_of(file) == Some(&image.build_id),
        };
        let own = FileMapping::open(own_path);
        let unread = match &own {
            // The vDSO has no file.
            _ if image.memory.is_some() => None,
            Ok(file) if is_matching(file) => None,
            Ok(_) => Some(("it is not the file that was loaded".to_owned(), false)),
            Err(error) => Some((error.to_string(), is_out_of_descriptors(error))),
        };
        let may_fall_back = !module.unloaded
            && match &own {
                // `backtrace` would read the same file, and parse all of it once more.
                Ok(_) => false,
                // `backtrace` would open a pipe, too, and wait for a writer.
                Err(error) => error.kind() != io::ErrorKind::InvalidInput,
            };
        let own = own.ok().filter(&is_matching);
        let debug = find_debug_file(&image.path, &image.build_id, own.as_deref());
        let own = own.map(|file| (file, image.path.clone()));
        let mut lacks_memory = false;
        let mut has_memory = |is_available: bool| {
            lacks_memory |= !is_available;
            is_available
        };
        // The debug file has all symbols.
        let in_own = own.as_ref().filter(|_| debug.is_none());
        let more_symbols = in_own.and_then(|(own, _)| {
            mini_debug_info(own, |bytes| has_memory(is_memory_available(bytes)))
        });
        let mut files = Vec::new();
        for (main, path) in debug.into_iter().chain(own) {
            if !has_memory(has_memory_for(&main)) {
                continue;
            }
            let supplementary = find_supplementary_file(&main, &path);
            files.push(SymbolFile {
                main: FileContent::Mapped(main),
                supplementary: supplementary.filter(|file| has_memory(has_memory_for(file))),
                package: FileMapping::open(&package_path(path)).ok(),
            });
        }
        files.extend(more_symbols.map(|bytes| SymbolFile {
            main: FileContent::Decompressed(bytes),
            supplementary: None,
            package: None,
        }));
        Self {
            files,
            may_fall_back: may_fall_back && !lacks_memory,
            lacks_memory,
            unread: unread.map(|(reason, lacks_descriptor)| UnreadFile {
                path: image.path.clone(),
                reason,
                lacks_descriptor,
            }),
        }
    }
}

/// Returns whether the module's own file was read, and neither it nor another file has symbols or
/// debug information of the module.
pub(crate) fn is_stripped(module: &LoadedModule) -> bool {
    let files = ModuleFiles::open(module);
    let has_names = |file: &SymbolFile| {
        let Ok(object) = ObjectFile::parse(&*file.main) else {
            return false;
        };
        object.symbols().next().is_some() || object.section_by_name(".debug_info").is_some()
    };
    // If memory was lacking, the files may have names that were not read.
    let is_known = files.unread.is_none() && !files.lacks_memory && !files.files.is_empty();
    is_known && !files.files.iter().any(has_names)
}

fn package_path(path: PathBuf) -> PathBuf {
    let mut path = path.into_os_string();
    path.push(".dwp");
    path.into()
}
