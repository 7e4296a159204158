//! Files that only their owner can read, and paths as bytes.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Makes a new file with mode 0600; fails when there is one of that name.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// The path of the running executable.
pub(crate) fn read_exe_path() -> PathBuf {
    std::fs::read_link("/proc/self/exe").unwrap_or_default()
}

/// A path from the bytes that the loader keeps.
pub(crate) fn to_path_bytes(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}
