//! Writes a profile to a file without a name, for a reader with a limit.

use std::io;

use crate::platform::SpoolFile;
use crate::session::snapshot::FrozenProfile;
use crate::session::write_options::default_options;
use crate::util::{ProgressLogger, SharedProgress};

/// Writes a profile in Gecko's format. While it is longer than `max_bytes`, writes it again without
/// its older half.
///
/// # Errors
/// The error of the file.
pub(super) fn spool_profile(
    mut profile: FrozenProfile,
    max_bytes: u64,
    progress: Option<&SharedProgress>,
) -> io::Result<SpoolFile> {
    loop {
        let mut options = default_options();
        options.stream.progress = ProgressLogger::for_job(progress);
        // The parent may write any format from it.
        options.stream.merges_alike = false;
        let mut spool = SpoolFile::create()?;
        profile.write(&options, &mut spool)?;
        if spool.bytes() <= max_bytes || !profile.leave_out_older_half() {
            return Ok(spool);
        }
    }
}
