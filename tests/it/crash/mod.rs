//! Sessions whose data outlive their process, and the profiles that are made from these data.

mod damage;
mod described;
mod ends;
mod files;
mod kills;
mod roles;

use std::path::Path;

use gekkota::Profile;
use gekkota::profile::{Format, SnapshotOptions, Symbolicate};

use crate::common::{Folder, Read};

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
