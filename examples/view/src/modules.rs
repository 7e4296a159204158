//! The files that may be opened to answer a request: the profile's modules, their debug files and
//! their source files.
//!
//! `samply-api` answers the requests, and opens files only through [`Modules`]. A request names a
//! module by its debug name and id, and only the profile's own modules are found. For source code
//! it also names a path. `samply-api` reads the debug information of the requested address, and
//! refuses a path that is not in it. It takes the file's path from the debug information, not from
//! the request.

use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::fs::{self, File};
use std::future;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;

use nix::fcntl::OFlag;
use samply_api::samply_symbols::{
    CandidatePathInfo, ElfBuildId, FileAndPathHelper, FileAndPathHelperResult, FileByteSource,
    FileContentsWithChunkedCaching, FileLocation, LibraryInfo, OptionallySendFuture,
    debugid::DebugId,
};

use crate::profile::Library;

/// Where distributions install the separate debug files of their packages.
const SYSTEM_DEBUG_FILES: &str = "/usr/lib/debug";

/// The modules of a profile, by debug name and id.
#[derive(Debug, Default)]
pub(crate) struct Modules(HashMap<(String, DebugId), Vec<Module>>);

/// A place where a module was when it ran.
#[derive(PartialEq, Eq, Debug)]
struct Module {
    path: PathBuf,
    /// The files that may hold its debug information, the best first.
    debug_files: Vec<PathBuf>,
}

impl Module {
    fn new(library: &Library) -> Option<Self> {
        let path = library.path.clone().filter(|path| path.is_absolute())?;
        let mut debug_files = Vec::new();
        debug_files.extend(library.code_id.as_deref().and_then(debug_file_by_build_id));
        debug_files.extend(library.debug_path.clone().filter(|other| *other != path));
        debug_files.push(path.clone());
        Some(Self { path, debug_files })
    }
}

fn debug_file_by_build_id(build_id: &str) -> Option<PathBuf> {
    let is_hexadecimal = build_id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let build_id = build_id.to_ascii_lowercase();
    let (folder, name) = build_id.split_at_checked(2)?;
    let path = format!("{SYSTEM_DEBUG_FILES}/.build-id/{folder}/{name}.debug");
    is_hexadecimal.then_some(PathBuf::from(path))
}

fn key_of(library: &Library) -> Option<(String, DebugId)> {
    let id = DebugId::from_breakpad(library.breakpad_id.as_deref()?).ok()?;
    Some((library.debug_name.clone()?, id)).filter(|_| !id.is_nil())
}

impl Modules {
    /// Leaves out libraries without a path or an id, such as the kernel's.
    pub(crate) fn new(libraries: &[Library]) -> Self {
        let mut modules = Self::default();
        for library in libraries {
            if let Some((key, module)) = key_of(library).zip(Module::new(library)) {
                let places = modules.0.entry(key).or_default();
                if !places.contains(&module) {
                    places.push(module);
                }
            }
        }
        modules
    }

    fn places_of(&self, library: &LibraryInfo) -> FileAndPathHelperResult<&[Module]> {
        let key = library.debug_name.clone().zip(library.debug_id);
        let places = key.and_then(|key| self.0.get(&key));
        let name = library.debug_name.as_deref().unwrap_or_default();
        let unknown = || format!("cannot open {name:?}: expected a module of the profile").into();
        places.map(Vec::as_slice).ok_or_else(unknown)
    }
}

/// A file that may be opened.
#[derive(Clone, Debug)]
pub(crate) enum Location {
    /// A module or a file with debug information, which must be an ELF file.
    Elf(PathBuf),
    Source(PathBuf),
}

impl Location {
    fn path(&self) -> &Path {
        match self {
            Self::Elf(path) | Self::Source(path) => path,
        }
    }

    /// Returns the path that debug information in this file names.
    fn named(&self, path: &str) -> Option<PathBuf> {
        match self {
            Self::Elf(file) => Some(file.parent()?.join(path)),
            Self::Source(_) => None,
        }
    }
}

impl Display for Location {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.path().display().fmt(f)
    }
}

impl FileLocation for Location {
    fn location_for_source_file(&self, path: &str) -> Option<Self> {
        self.named(path).map(Self::Source)
    }

    /// The debug information of a compilation unit that the linker left in a file of its own.
    fn location_for_dwo(&self, folder: &str, path: &str) -> Option<Self> {
        let path = Path::new(folder).join(path);
        self.named(path.to_str()?).map(Self::Elf)
    }

    fn location_for_dwp(&self) -> Option<Self> {
        let mut path = self.path().as_os_str().to_owned();
        path.push(".dwp");
        Some(Self::Elf(path.into()))
    }

    // Formats of other systems.
    fn location_for_dyld_subcache(&self, _: &str) -> Option<Self> {
        None
    }

    fn location_for_external_object_file(&self, _: &str) -> Option<Self> {
        None
    }

    fn location_for_pdb_from_binary(&self, _: &str) -> Option<Self> {
        None
    }

    fn location_for_breakpad_symindex(&self) -> Option<Self> {
        None
    }
}

/// Reads parts of a file when they are needed. Not mapped memory, because a file that another
/// program truncates would end this one.
pub(crate) struct FileParts(File);

impl FileByteSource for FileParts {
    fn read_bytes_into(
        &self,
        buffer: &mut Vec<u8>,
        offset: u64,
        size: usize,
    ) -> FileAndPathHelperResult<()> {
        let start = buffer.len();
        buffer.resize(start + size, 0);
        Ok(self.0.read_exact_at(&mut buffer[start..], offset)?)
    }
}

type Contents = FileContentsWithChunkedCaching<FileParts>;

fn open(location: &Location) -> FileAndPathHelperResult<Contents> {
    let path = location.path();
    let expect_file = |metadata: fs::Metadata| match metadata.is_file() {
        true => Ok(()),
        false => Err(format!("cannot open {location}: expected a file")),
    };
    // To open a device can have an effect.
    expect_file(fs::metadata(path)?)?;
    // The path may lead to a pipe by now, which would wait for a writer.
    let without_waiting = OFlag::O_NONBLOCK.bits();
    let file = File::options()
        .read(true)
        .custom_flags(without_waiting)
        .open(path)?;
    expect_file(file.metadata()?)?;
    if let Location::Elf(_) = location {
        // Other formats, such as Breakpad's text, could be written by hand and name any path.
        let mut magic = [0; 4];
        file.read_exact_at(&mut magic, 0)?;
        if magic != *b"\x7fELF" {
            return Err(format!("cannot open {location}: expected an ELF file").into());
        }
    }
    Ok(Contents::new(file.metadata()?.len(), FileParts(file)))
}

fn candidates<'path>(
    paths: impl Iterator<Item = &'path PathBuf>,
) -> Vec<CandidatePathInfo<Location>> {
    let location = |path: &PathBuf| CandidatePathInfo::SingleFile(Location::Elf(path.clone()));
    paths.map(location).collect()
}

impl FileAndPathHelper for Modules {
    type F = Contents;
    type FL = Location;

    fn get_candidate_paths_for_debug_file(
        &self,
        library: &LibraryInfo,
    ) -> FileAndPathHelperResult<Vec<CandidatePathInfo<Location>>> {
        let places = self.places_of(library)?.iter();
        Ok(candidates(places.flat_map(|module| &module.debug_files)))
    }

    fn get_candidate_paths_for_binary(
        &self,
        library: &LibraryInfo,
    ) -> FileAndPathHelperResult<Vec<CandidatePathInfo<Location>>> {
        let places = self.places_of(library)?.iter();
        Ok(candidates(places.map(|module| &module.path)))
    }

    /// Finds the debug file whose name a stripped module contains, where debuggers look for it.
    /// `samply-api` compares the file's checksum.
    fn get_candidate_paths_for_gnu_debug_link_dest(
        &self,
        module: &Location,
        name: &str,
    ) -> FileAndPathHelperResult<Vec<Location>> {
        if name.contains('/') {
            return Err(format!("cannot open {name:?}: expected a file name").into());
        }
        let folder = module
            .path()
            .parent()
            .ok_or("expected a file in a folder")?;
        let system = Path::new(SYSTEM_DEBUG_FILES);
        let system = system.join(folder.strip_prefix("/").unwrap_or(folder));
        let folders = [folder.to_owned(), folder.join(".debug"), system];
        Ok(folders
            .map(|folder| Location::Elf(folder.join(name)))
            .into())
    }

    /// Finds the file with debug information that several debug files share. `samply-api` compares
    /// its build id.
    fn get_candidate_paths_for_supplementary_debug_file(
        &self,
        debug_file: &Location,
        path: &str,
        build_id: &ElfBuildId,
    ) -> FileAndPathHelperResult<Vec<Location>> {
        let by_build_id = debug_file_by_build_id(&build_id.to_string());
        let paths = debug_file.named(path).into_iter().chain(by_build_id);
        Ok(paths.map(Location::Elf).collect())
    }

    fn get_dyld_shared_cache_paths(
        &self,
        _: Option<&str>,
    ) -> FileAndPathHelperResult<Vec<Location>> {
        Ok(Vec::new())
    }

    fn load_file(
        &self,
        location: Location,
    ) -> Pin<Box<dyn OptionallySendFuture<Output = FileAndPathHelperResult<Contents>> + '_>> {
        Box::pin(future::ready(open(&location)))
    }
}
