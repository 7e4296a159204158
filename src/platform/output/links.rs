//! Symbolic links in a path, and files that another user may have planted.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::geteuid;

use crate::platform::output::copying::is_same_file;

/// Maximum number of links in a row, as in the kernel.
const MAX_LINKS: usize = 40;

/// Mode of a folder where each user may create files, and remove only their own.
const STICKY_AND_WRITABLE: u32 = libc::S_ISVTX | libc::S_IWOTH;

/// Returns the folder of a file, for use in system calls.
pub(super) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Follows the symbolic links at the end of a path, and returns the path of the file that they lead
/// to. The file may be missing.
///
/// Refuses a link that a stranger may have planted, even if the kernel would follow it because
/// `fs.protected_symlinks` is off: see [`check_owner`]. Returns a link of the kernel as it is if
/// its text names no file, as that of `/proc/self/fd/1` does for a pipe.
pub(crate) fn follow_links(mut path: PathBuf) -> io::Result<PathBuf> {
    for _ in 0..=MAX_LINKS {
        let Ok(link) = std::fs::symlink_metadata(&path) else {
            return Ok(path);
        };
        if !link.is_symlink() {
            return Ok(path);
        }
        check_owner(&path, &link, "link")?;
        // The kernel also refuses links here, by its own rules.
        let by_kernel = match std::fs::metadata(&path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let target = folder_of(&path).join(std::fs::read_link(&path)?);
        let by_text = std::fs::metadata(&target);
        if by_kernel.is_some_and(|file| !by_text.is_ok_and(|other| is_same_file(&file, &other))) {
            return Ok(path);
        }
        path = target;
    }
    Err(Errno::ELOOP.into())
}

/// Returns an error if a stranger may have planted this link or file. A stranger may have planted
/// it if the folder lets each user create files, and it belongs neither to the user of this process
/// nor to the folder's owner.
///
/// This is the kernel's rule for links (`fs.protected_symlinks`), pipes and files
/// (`fs.protected_fifos`, `fs.protected_regular`).
pub(super) fn check_owner(path: &Path, metadata: &Metadata, kind: &str) -> io::Result<()> {
    let user = geteuid().as_raw();
    if metadata.uid() == user {
        return Ok(());
    }
    let folder = std::fs::metadata(folder_of(path))?;
    let is_shared = folder.mode() & STICKY_AND_WRITABLE == STICKY_AND_WRITABLE;
    if !is_shared || folder.uid() == metadata.uid() {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!(
            "got the {kind} {} of user {} in a folder where each user may create files, expected \
             one of user {user} or of the folder's owner",
            path.display(),
            metadata.uid()
        ),
    ))
}
