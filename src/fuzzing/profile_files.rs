//! Fuzzes the reader of profiles, and all writers.

use std::io::{self, Write};

use crate::export::{read_profile_from, write_profile};
use crate::model::ProfileModel;
use crate::types::{ExportOptions, Format};

/// Maximum length of what is written in one format, in bytes.
const MAX_BYTES: usize = 4 << 20;

/// Counts bytes, and fails beyond the limit.
struct Limited {
    left: usize,
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.left.checked_sub(bytes.len()) {
            Some(left) => self.left = left,
            None => return Err(io::ErrorKind::StorageFull.into()),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn count_samples(profile: &ProfileModel) -> usize {
    let threads = profile.threads.iter();
    threads.map(|thread| thread.samples.len()).sum()
}

/// Reads `input` as a profile. Writes a valid profile in every format, and reads back the processed
/// format: it has the same samples.
pub fn check_profile_file(input: &[u8]) {
    let Ok(profile) = read_profile_from(input) else {
        return;
    };
    let options = ExportOptions::default();
    for format in Format::all() {
        let mut out = Limited { left: MAX_BYTES };
        if let Err(error) = write_profile(&profile, format, &options, &mut out) {
            let is_expected = matches!(
                error.kind(),
                // The limit, a profile without threads, a format that is not built, or Gecko's.
                io::ErrorKind::StorageFull
                    | io::ErrorKind::InvalidInput
                    | io::ErrorKind::Unsupported
            );
            assert!(is_expected, "{}: {error}", format.name());
        }
    }
    let mut text = Vec::new();
    write_profile(&profile, Format::Processed, &options, &mut text).expect("a vector never fails");
    let again = read_profile_from(&*text).expect("a profile that was written");
    assert_eq!(count_samples(&again), count_samples(&profile));
}
