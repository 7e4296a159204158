//! An existing file that is overwritten, because no other file can take its place: its folder is
//! not writable, or the file is a mount point.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};

use crate::platform::identity::without_write_signals;
use crate::platform::output::copying::copy_all;
use crate::platform::output::links::check_owner;
use crate::platform::shared_file::SharedFile;

/// An existing file that is open for writing.
#[derive(Debug)]
pub(crate) struct ExistingFile(SharedFile);

impl ExistingFile {
    /// Opens the file without changing it. Does not follow a link. Refuses a file that a stranger
    /// may have planted, and one with several names, because its other names may be in the home of
    /// the user.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        check_owner(path, &std::fs::symlink_metadata(path)?, "file")?;
        let file = SharedFile::open_no_link(OpenOptions::new().write(true), path)?;
        let metadata = file.get()?.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("got no regular file, expected one"));
        }
        if metadata.nlink() != 1 {
            return Err(io::Error::other(format!(
                "got a file with {} names in a folder that is not writable, expected one name",
                metadata.nlink()
            )));
        }
        Ok(Self(file))
    }

    /// Replaces the content by all of `from`. After an error of the reservation, the content is
    /// unchanged; after a later error, the file is empty. A kill or a power failure in between
    /// leaves a part of the new content.
    pub(crate) fn overwrite_with(&self, from: &SharedFile) -> io::Result<()> {
        without_write_signals(|| {
            let length = from.get()?.metadata()?.len();
            self.reserve(length)?;
            let overwritten = copy_all(from, &self.0)
                .and_then(|()| self.0.get()?.set_len(length))
                .and_then(|()| self.0.sync_all());
            if overwritten.is_err() {
                let _ = self.0.get().and_then(|file| file.set_len(0));
            }
            overwritten
        })
    }

    /// Reserves space, so that a full disk is noticed before anything is overwritten. Best effort:
    /// some file systems cannot reserve space.
    fn reserve(&self, length: u64) -> io::Result<()> {
        let length = length.try_into().map_err(io::Error::other)?;
        if length == 0 {
            return Ok(());
        }
        match fallocate(
            self.0.get()?,
            FallocateFlags::FALLOC_FL_KEEP_SIZE,
            0,
            length,
        ) {
            Err(refusal @ (Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG)) => Err(refusal.into()),
            _ => Ok(()),
        }
    }
}
