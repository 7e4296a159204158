//! Finds files that hold the debug information of another file.
//!
//! A stripped file names its debug file in the section `.gnu_debuglink`. Distributions put debug
//! files into a folder by build id, and move what several of them have in common into a
//! supplementary file, as the program `dwz` does.

use std::path::{Path, PathBuf};

use object::Object;

use crate::platform::{FileMapping, has_rights_of_another_user, to_path_bytes};
use crate::symbols::object_file::ObjectFile;

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
