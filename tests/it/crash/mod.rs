//! Sessions whose data outlive their process, and the profiles that are made from these data.

mod damage;
mod described;
mod ends;
mod files;
mod kills;
mod roles;

use std::fs;
use std::path::{Path, PathBuf};

use gekkota::Profile;
use gekkota::profile::{Format, SnapshotOptions, Symbolicate};

use crate::common::Read;

/// A new folder, removed with its files when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("gekkota-crash-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).expect("a new folder");
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the names of the files, sorted.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("the folder").flatten();
        let mut names: Vec<_> = entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Rescues a file, and reads the profile, which has no function names.
#[track_caller]
fn rescued(path: &Path) -> Read {
    let profile = Profile::rescue(path).unwrap_or_else(|error| panic!("{error}"));
    let options = SnapshotOptions::default().symbolicate(Symbolicate::No);
    let mut text = Vec::new();
    profile
        .write_with(Format::Gecko, &mut text, &options)
        .expect("a vector never fails");
    let read = Read::from_text(&text);
    let losses = &read.0["meta"]["losses"];
    for name in ["malformed_entries", "entries_without_thread"] {
        assert_eq!(losses[name], 0, "{name} in {losses}");
    }
    read
}
