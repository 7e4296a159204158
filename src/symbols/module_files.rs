//! The files with the names of a module: its own file, and a separate debug file if the system has
//! one. Each may come with a package of split debug information and a supplementary file. A module's
//! own file may also contain a compressed file with more symbols (MiniDebugInfo).
//!
//! A stripped file names its debug file in the section `.gnu_debuglink`. Distributions put debug
//! files into a folder by build id, and move what several of them have in common into a
//! supplementary file, as the program `dwz` does.
//!
//! A file that differs from the one that was loaded, because it was rebuilt, provides no names.

use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use object::read::elf::ElfFile64;
use object::{NativeEndian, Object};

use crate::platform::{
    FileMapping, has_rights_of_another_user, is_memory_available, is_out_of_descriptors,
    on_own_descriptors, to_path_bytes,
};
use crate::unwind::LoadedModule;

/// Path that opens this program even after its file was renamed or removed.
const OWN_FILE: &str = "/proc/thread-self/exe";

/// A file with symbols: one for this machine's processors, since the process runs its code. A reader
/// for all word sizes and byte orders would be slower, and twice as large.
pub(super) type ObjectFile<'a> = ElfFile64<'a, NativeEndian>;

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

/// Directory in which distributions put debug files.
const DEBUG_FILES: &str = "/usr/lib/debug";

/// Maps the separate debug file of a module, if it has one. `own` is the content of the module's
/// own file, unless that is missing or does not match the module. Returns the path, too.
///
/// A program with more rights than the user who started it looks only where the system has debug
/// files: that user may have made a link to the module in a folder of their own.
pub(super) fn find_debug_file(
    module_path: &Path,
    build_id: &[u8],
    own: Option<&[u8]>,
) -> Option<(FileMapping, PathBuf)> {
    let open = |path: PathBuf| Some((FileMapping::open(&path).ok()?, path));
    let has_build_id = |(file, _): &(FileMapping, PathBuf)| build_id_of(file) == Some(build_id);
    let by_build_id = path_by_build_id(build_id).and_then(open);
    by_build_id.filter(has_build_id).or_else(|| {
        let (name, checksum) = debug_link(own?)?;
        let is_right = |found: &(FileMapping, PathBuf)| match build_id.is_empty() {
            true => crc32fast::hash(&found.0) == checksum,
            false => has_build_id(found),
        };
        let mut found = linked_paths(module_path, &name).filter_map(open);
        found.find(is_right)
    })
}

/// Maps the supplementary file, if any, that a file with debug information refers to.
pub(super) fn find_supplementary_file(file: &[u8], path: &Path) -> Option<FileMapping> {
    let object = ObjectFile::parse(file).ok()?;
    let (name, build_id) = object.gnu_debugaltlink().ok()??;
    // The name is relative to the folder of the file, or absolute.
    let named = folder_of(path).join(to_path_bytes(name));
    [Some(named), path_by_build_id(build_id)]
        .into_iter()
        .flatten()
        .filter_map(|path| FileMapping::open(&path).ok())
        .find(|file| build_id_of(file) == Some(build_id))
}

/// Returns the path at which distributions put the debug file of a file with this build id.
fn path_by_build_id(build_id: &[u8]) -> Option<PathBuf> {
    let digits = hex_digits(build_id);
    let (first, rest) = digits.split_at_checked(2)?;
    Some(Path::new(DEBUG_FILES).join(format!(".build-id/{first}/{rest}.debug")))
}

/// Returns a build id as paths and profiles have it.
pub(super) fn hex_digits(build_id: &[u8]) -> String {
    build_id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the file name and the checksum in the section `.gnu_debuglink`.
fn debug_link(file: &[u8]) -> Option<(PathBuf, u32)> {
    let (name, checksum) = ObjectFile::parse(file).ok()?.gnu_debuglink().ok()??;
    let name = to_path_bytes(name);
    // A name with a folder would leave the places where debug files are looked for.
    let is_file_name = name.file_name() == Some(name.as_os_str());
    is_file_name.then_some((name, checksum))
}

/// Returns the paths at which debuggers look for a file that a module links to.
fn linked_paths(module_path: &Path, name: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let folder = folder_of(module_path);
    let below_root = folder.strip_prefix("/").unwrap_or(folder);
    let paths = [
        folder.join(name),
        folder.join(".debug").join(name),
        Path::new(DEBUG_FILES).join(below_root).join(name),
    ];
    let trusts_all = !has_rights_of_another_user();
    let is_trusted = move |path: &PathBuf| trusts_all || path.starts_with(DEBUG_FILES);
    let module_path = module_path.to_owned();
    let paths = paths.into_iter().filter(is_trusted);
    paths.filter(move |path| *path != module_path)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// Returns the build id in a file.
pub(super) fn build_id_of(file: &[u8]) -> Option<&[u8]> {
    ObjectFile::parse(file).ok()?.build_id().ok()?
}

/// Returns the file that is compressed in this one, in its section `.gnu_debugdata`. Fedora's
/// packages have it. Returns `None` if it is missing, malformed or too large, or if `has_memory`
/// finds that memory is lacking.
#[cfg(feature = "mini_debug_info")]
fn mini_debug_info(file: &[u8], has_memory: impl FnOnce(usize) -> bool) -> Option<Vec<u8>> {
    use std::io::Read;

    use object::ObjectSection;

    /// Maximum size of the symbols, in bytes. Those of the largest programs have some 10 MB.
    const MAX_BYTES: usize = 64 << 20;
    /// Maximum memory for decompression, in KiB.
    const MAX_DECODER_KIB: u32 = 64 << 10;
    let object = ObjectFile::parse(file).ok()?;
    let section = object.section_by_name(".gnu_debugdata")?;
    let compressed = section.data().ok()?;
    let needed = MAX_BYTES + (MAX_DECODER_KIB as usize) * 1024;
    if !has_memory(needed) {
        return None;
    }
    let reader = lzma_rust2::XzReader::new_mem_limit(compressed, false, MAX_DECODER_KIB);
    let mut bytes = Vec::new();
    let read = reader.take(MAX_BYTES as u64).read_to_end(&mut bytes).ok()?;
    (read < MAX_BYTES).then_some(bytes)
}

/// Returns no file: the feature `mini_debug_info` is off.
#[cfg(not(feature = "mini_debug_info"))]
fn mini_debug_info(_file: &[u8], _has_memory: impl FnOnce(usize) -> bool) -> Option<Vec<u8>> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_files_are_looked_for_where_debuggers_do() {
        assert_eq!(
            path_by_build_id(&[0xab, 0x01, 0xff]),
            Some("/usr/lib/debug/.build-id/ab/01ff.debug".into())
        );
        assert_eq!(path_by_build_id(&[]), None);
        let paths = |module: &str, name: &str| -> Vec<PathBuf> {
            linked_paths(Path::new(module), Path::new(name)).collect()
        };
        assert_eq!(
            paths("/opt/app/lib.so", "lib.debug"),
            [
                "/opt/app/lib.debug",
                "/opt/app/.debug/lib.debug",
                "/usr/lib/debug/opt/app/lib.debug"
            ]
            .map(PathBuf::from)
        );
        // A file that links to its own name has its debug file elsewhere.
        assert_eq!(
            paths("/opt/lib.so", "lib.so"),
            ["/opt/.debug/lib.so", "/usr/lib/debug/opt/lib.so"].map(PathBuf::from)
        );
    }
}
