//! Text files of a folder, and a folder that is likely to have them.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Larger files would make the progress of a worker jump.
const MOST_BYTES: u64 = 1 << 20;
/// Fewer would be searched again and again.
const ENOUGH_FILES: usize = 100;

pub(crate) struct TextFile {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

/// The first of some folders with Rust sources that has enough of them.
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
                "there are no text files in any of {:?}; name a PATH",
                Vec::from_iter(folders())
            )
        })
}

/// The component rust-src, beside the cargo that runs this.
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

/// The text files of the folder and of those in it: so many at most, and no more than are found before the deadline.
/// What cannot be read is left out, and so are links, hidden folders and what cargo builds.
#[inline(never)]
pub(crate) fn walk_folder(root: &Path, most: usize, deadline: Option<Instant>) -> Vec<TextFile> {
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
            } else if metadata.is_file() && (1..=MOST_BYTES).contains(&metadata.len()) {
                let file = TextFile {
                    path: entry.path(),
                    bytes: metadata.len(),
                };
                if starts_as_text(&file.path) {
                    found.push(file);
                }
            }
            if found.len() == most || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
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
    // The last character may be cut.
    let is_utf8 =
        std::str::from_utf8(start).map_or_else(|error| error.error_len().is_none(), |_| true);
    length > 0 && is_utf8 && !start.contains(&0)
}
