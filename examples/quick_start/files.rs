//! Finds the text files of a folder, and a default folder that is likely to have some.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Maximum size of a file, in bytes: larger files would make a worker's progress jump.
const MAX_BYTES: u64 = 1 << 20;
/// Number of files that a default folder should have: with fewer, the workers would search the same
/// files over and over.
const ENOUGH_FILES: usize = 100;

pub(crate) struct TextFile {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

/// Returns the first of several folders with Rust sources that has enough files.
pub(crate) fn default_folder() -> Result<PathBuf, String> {
    let candidates = [
        toolchain_sources(),
        registry_sources(),
        Some(env!("CARGO_MANIFEST_DIR").into()),
    ];
    let folders = || candidates.iter().flatten();
    let enough = |folder: &&PathBuf| walk_folder(folder, ENOUGH_FILES, None).len() == ENOUGH_FILES;
    folders()
        .find(enough)
        .or_else(|| folders().find(|folder| !walk_folder(folder, 1, None).is_empty()))
        .cloned()
        .ok_or_else(|| {
            format!(
                "cannot find a default folder: got no text files in any of {:?}, expected a PATH",
                Vec::from_iter(folders())
            )
        })
}

/// Returns the folder of the component `rust-src`, in the toolchain whose cargo runs this example.
fn toolchain_sources() -> Option<PathBuf> {
    let cargo = PathBuf::from(std::env::var_os("CARGO")?);
    Some(
        cargo
            .parent()?
            .parent()?
            .join("lib/rustlib/src/rust/library"),
    )
}

fn registry_sources() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME")
        .filter(|home| !home.is_empty())
        .map(PathBuf::from);
    Some(
        home.or_else(|| Some(std::env::home_dir()?.join(".cargo")))?
            .join("registry/src"),
    )
}

/// Returns the text files of the folder and its subfolders: at most `max`, and only those found
/// before the deadline. Skips unreadable files, links, hidden folders and cargo's `target` folders.
#[inline(never)]
pub(crate) fn walk_folder(root: &Path, max: usize, deadline: Option<Instant>) -> Vec<TextFile> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            let name = entry.file_name();
            if metadata.is_dir() && !name.as_encoded_bytes().starts_with(b".") && name != "target" {
                folders.push(entry.path());
            } else if metadata.is_file() && (1..=MAX_BYTES).contains(&metadata.len()) {
                let file = TextFile {
                    path: entry.path(),
                    bytes: metadata.len(),
                };
                if starts_as_text(&file.path) {
                    found.push(file);
                }
            }
            if found.len() == max || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return found;
            }
        }
    }
    found
}

fn starts_as_text(path: &Path) -> bool {
    let mut start = [0; 512];
    let Ok(length) = File::open(path).and_then(|mut file| file.read(&mut start)) else {
        return false;
    };
    let start = &start[..length];
    // The last character may be incomplete.
    let is_utf8 =
        std::str::from_utf8(start).map_or_else(|error| error.error_len().is_none(), |_| true);
    length > 0 && is_utf8 && !start.contains(&0)
}
