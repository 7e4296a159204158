//! Files that only their owner can read, and paths as bytes.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::platform::identity::current_user_id;

/// Makes a new file with mode 0600; fails when there is one of that name.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// Opens a file that the process's own user has made, in a folder in which others may make files, too. `None` when it is
/// not there, is somebody else's, or is no plain file, such as a pipe that would wait for a writer.
pub(crate) fn open_own_file(path: &Path) -> Option<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .ok()?;
    let metadata = file.metadata().ok()?;
    (metadata.is_file() && metadata.uid() == current_user_id()).then_some(file)
}

/// The path of the running executable.
pub(crate) fn read_exe_path() -> PathBuf {
    std::fs::read_link("/proc/self/exe").unwrap_or_default()
}

/// A path from the bytes that the loader keeps.
pub(crate) fn to_path_bytes(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}
