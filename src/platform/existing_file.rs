//! Existing files that a profile is saved to: the links that lead to them, files that are
//! overwritten, and devices and pipes.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, fallocate};
use nix::unistd::geteuid;

use crate::platform::identity::{wait_until_writable, without_write_signals};
use crate::platform::shared_file::SharedFile;

/// Maximum number of links in a row, as in the kernel.
const MAX_LINKS: usize = 40;

/// Mode of a folder where each user may create files, and remove only their own.
const STICKY_AND_WRITABLE: u32 = libc::S_ISVTX | libc::S_IWOTH;

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
fn check_owner(path: &Path, metadata: &Metadata, kind: &str) -> io::Result<()> {
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

/// An existing file that is open for writing: it is overwritten, because no other file can take its
/// place. Its folder is not writable, or the file is a mount point.
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

/// Maximum wait for a reader of a pipe, and for the reader to read something. Shorter than the time
/// after which the end of the process gives up a save (`process_end/gate.rs`).
const MAX_WAIT: Duration = Duration::from_secs(5);
/// Time between two attempts to open a pipe that has no reader.
const ATTEMPT: Duration = Duration::from_millis(10);

/// A device or pipe that is open for writing. It is written directly: a rename would replace it by
/// a file.
#[derive(Debug)]
pub(crate) struct SpecialFile(SharedFile);

impl SpecialFile {
    /// Returns whether the path leads to a device, pipe or socket.
    pub(crate) fn is_at(path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
    }

    /// Opens a device or pipe. Refuses a pipe that a stranger may have planted, and one that has no
    /// reader for five seconds.
    ///
    /// The path is one that [`follow_links`] returned. If it still ends with a
    /// link, that link is one of the kernel's, and is followed.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let metadata = std::fs::symlink_metadata(path)?;
        check_owner(path, &metadata, "file")?;
        let mut flags = OFlag::O_NOCTTY | OFlag::O_NONBLOCK;
        if !metadata.is_symlink() {
            flags |= OFlag::O_NOFOLLOW;
        }
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(flags.bits());
        let is_pipe = std::fs::metadata(path)?.file_type().is_fifo();
        let until = Instant::now() + MAX_WAIT;
        let file = loop {
            match SharedFile::open(&options, path) {
                Err(error) if is_pipe && error.raw_os_error() == Some(Errno::ENXIO as i32) => {
                    if Instant::now() > until {
                        return Err(timed_out("got no reader of the pipe for"));
                    }
                    std::thread::sleep(ATTEMPT);
                }
                opened => break opened?,
            }
        };
        if file.get()?.metadata()?.is_file() {
            return Err(io::Error::other("got a file, expected a device or pipe"));
        }
        Ok(Self(file))
    }
}

impl Write for SpecialFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let until = Instant::now() + MAX_WAIT;
        loop {
            match without_write_signals(|| self.0.write(bytes)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let is_late = Instant::now() > until;
                    if is_late || !wait_until_writable(self.0.get()?.as_fd(), until) {
                        return Err(timed_out("got a reader that reads nothing for"));
                    }
                }
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn timed_out(got: &str) -> io::Error {
    let error = format!("{got} {} s, expected one that reads", MAX_WAIT.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, error)
}

/// Returns the folder of a file, for use in system calls.
pub(super) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Copies all of `from`, from its beginning, to the current position of `to`.
///
/// Unlike `std::io::copy`, this makes no system calls but to check, read and write the files, which
/// a sandbox that allows saving allows.
pub(super) fn copy_all(mut from: &SharedFile, mut to: &SharedFile) -> io::Result<()> {
    let mut part = vec![0; 1 << 16];
    from.get()?.rewind()?;
    loop {
        match from.read(&mut part) {
            Ok(0) => return Ok(()),
            Ok(length) => to.write_all(&part[..length])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns whether both describe the same file.
pub(super) fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}
