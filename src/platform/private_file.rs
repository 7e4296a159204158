//! Files of this user in folders of others, the executable, and paths from bytes.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use crate::platform::shared_file::{SharedFile, is_regular};

/// A file of this user.
pub(crate) struct OwnFile {
    pub(crate) file: SharedFile,
    pub(crate) bytes: u64,
    /// Time of the last change, in milliseconds since 1970.
    pub(crate) modified_ms: f64,
}

/// Opens a file owned by the user of this process, in a folder where other users may create files.
/// Returns `None` if the file is missing, belongs to another user, or is not a regular file; a
/// pipe, for example, would block until a writer opens it.
pub(crate) fn open_own_file(path: &Path) -> Option<OwnFile> {
    let file = SharedFile::open_no_link(OpenOptions::new().read(true), path).ok()?;
    let status = file.status().ok()?;
    let is_own = is_regular(&status) && status.st_uid == geteuid().as_raw();
    is_own.then_some(OwnFile {
        file,
        bytes: status.st_size as u64,
        modified_ms: status.st_mtime as f64 * 1e3 + status.st_mtime_nsec as f64 / 1e6,
    })
}

/// Returns the path of the running executable, or an empty path if it is unknown.
pub(crate) fn read_exe_path() -> PathBuf {
    std::fs::read_link("/proc/thread-self/exe").unwrap_or_default()
}

/// Creates a path from the bytes that the loader reports.
pub(crate) fn to_path_bytes(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}
