//! Devices and pipes, which are written directly: a rename would replace them by a file.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;

use crate::platform::identity::without_write_signals;
use crate::platform::output::links::check_owner;
use crate::platform::shared_file::SharedFile;

/// A device or pipe that is open for writing.
#[derive(Debug)]
pub(crate) struct SpecialFile(SharedFile);

impl SpecialFile {
    /// Returns whether the path leads to a device, pipe or socket.
    pub(crate) fn is_at(path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
    }

    /// Opens a device or pipe. Refuses a pipe that a stranger may have planted.
    ///
    /// The path is one that [`follow_links`](super::follow_links) returned. If it still ends with a
    /// link, that link is one of the kernel's, and is followed.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let metadata = std::fs::symlink_metadata(path)?;
        check_owner(path, &metadata, "file")?;
        let mut flags = OFlag::O_NOCTTY;
        if !metadata.is_symlink() {
            flags |= OFlag::O_NOFOLLOW;
        }
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(flags.bits());
        let file = SharedFile::open(&options, path)?;
        if file.get()?.metadata()?.is_file() {
            return Err(io::Error::other("got a file, expected a device or pipe"));
        }
        Ok(Self(file))
    }
}

impl Write for SpecialFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        without_write_signals(|| self.0.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
