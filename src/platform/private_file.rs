//! Files of this user in folders of others, the executable, and paths from bytes.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::unistd::geteuid;

use crate::platform::shared_file::{SharedFile, is_regular};

/// Opens a file owned by the user of this process, in a folder where other users may create files,
/// and returns it with its length.
/// Returns `None` if the file is missing, belongs to another user, or is not a regular file; a
/// pipe, for example, would block until a writer opens it.
pub(crate) fn open_own_file(path: &Path) -> Option<(SharedFile, u64)> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits());
    let file = SharedFile::open(&options, path).ok()?;
    let status = file.status().ok()?;
    let is_own = is_regular(&status) && status.st_uid == geteuid().as_raw();
    is_own.then_some((file, status.st_size as u64))
}

/// Returns the path of the running executable, or an empty path if it is unknown.
pub(crate) fn read_exe_path() -> PathBuf {
    std::fs::read_link("/proc/self/exe").unwrap_or_default()
}

/// Creates a path from the bytes that the loader reports.
pub(crate) fn to_path_bytes(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}
