//! Saves the running session's profile to one file from several threads, also without free
//! descriptors. Each reader of the file finds a whole profile.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use gekkota::profile::{SnapshotOptions, Symbolicate};
use gekkota::{Profile, SaveError};
use serde::de::IgnoredAny;

use crate::crew::Context;
use crate::{folder, gate, tally};

const FILE: &str = "saved.json";

fn path() -> PathBuf {
    folder::path().join(FILE)
}

/// Saves a profile that was taken before.
pub fn save_taken(profile: &Profile) {
    let options = SnapshotOptions::default().symbolicate(Symbolicate::No);
    count(profile.save_with(path(), &options));
}

/// Counts a save. The process may have had no free descriptor.
fn count(saved: Result<(), SaveError>) {
    match saved {
        Ok(()) => tally::SAVES.one(),
        Err(SaveError::Inactive) => {}
        Err(SaveError::Io { error, .. }) if error.raw_os_error() == Some(libc::EMFILE) => {
            tally::SAVES_REFUSED.one();
        }
        Err(error) => panic!("{error}"),
    }
}

/// Reads the whole file, if a profile was ever saved.
fn read() {
    let text = match gate::with_descriptors(|| std::fs::read(path())) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        Err(error) => panic!("cannot read {FILE}: {error}"),
    };
    check(&text).unwrap_or_else(|problem| panic!("{FILE}: {problem}"));
    tally::FILES_READ.one();
}

/// Checks that a file is one whole JSON object with the threads of a profile.
pub fn check(text: &[u8]) -> Result<(), String> {
    let length = text.len();
    match serde_json::from_slice::<HashMap<String, IgnoredAny>>(text) {
        Ok(profile) if profile.contains_key("threads") => Ok(()),
        Ok(_) => Err(format!("no profile, in {length} bytes")),
        Err(error) => Err(format!("torn, in {length} bytes: {error}")),
    }
}

pub fn save_worker(context: &mut Context) {
    while context.goes_on() {
        std::thread::sleep(Duration::from_millis(20 + context.random.below(300)));
        // It finds names for all addresses, which takes a second of a processor.
        if context.random.once_in(40) {
            count(gekkota::profiler_save_profile_to_file(path()));
        }
        read();
    }
}

/// Returns the files of unfinished saves. Each save removes those of earlier ones.
pub fn left_behind() -> Vec<String> {
    folder::names_with(".")
}
