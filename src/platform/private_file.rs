//! Files of this user in folders of others, the executable, and paths from bytes.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::unistd::geteuid;

/// Opens a file owned by the user of this process, in a folder where other users may create files.
/// Returns `None` if the file is missing, belongs to another user, or is not a regular file; a
/// pipe, for example, would block until a writer opens it.
pub(crate) fn open_own_file(path: &Path) -> Option<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(path)
        .ok()?;
    let metadata = file.metadata().ok()?;
    (metadata.is_file() && metadata.uid() == geteuid().as_raw()).then_some(file)
}

/// Returns the path of the running executable, or an empty path if it is unknown.
pub(crate) fn read_exe_path() -> PathBuf {
    std::fs::read_link("/proc/self/exe").unwrap_or_default()
}

/// Creates a path from the bytes that the loader reports.
pub(crate) fn to_path_bytes(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}
