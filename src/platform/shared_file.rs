//! Files that the profiler opens in the descriptor table of the application, which may close every
//! descriptor that it did not open. The number is then free, or refers to a file of the
//! application.
//!
//! A thread of the profiler that holds files has a table of its own where the system allows it
//! (`thread/own_descriptors.rs`). These types serve all other threads. Before each use, before the
//! descriptor is closed, and again after each read, they compare device and inode with those of the
//! file that was opened.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use nix::unistd::geteuid;

/// Device and inode of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    pub(super) fn of(status: &FileStat) -> Self {
        Self {
            device: status.st_dev,
            inode: status.st_ino,
        }
    }
}

/// An open file of a process, for another process of the same user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileDescriptor {
    pub(crate) number: i32,
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl FileDescriptor {
    /// Opens the file of that process for reading, if the descriptor still refers to it.
    ///
    /// # Errors
    /// `NotFound` if it does not, or `InvalidInput` if it is not a regular file; otherwise the error of
    /// the operating system.
    pub(crate) fn open_of(self, process: i32) -> io::Result<SharedFile> {
        let path = format!("/proc/{process}/fd/{}", self.number);
        let file = SharedFile::open_regular(Path::new(&path))?;
        let FileIdentity { device, inode } = file.identity;
        match (device, inode) == (self.device, self.inode) {
            true => Ok(file),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// A file that is used and closed only while its descriptor refers to it. What was read counts only
/// if the descriptor still refers to it afterwards.
///
/// Two cases are not covered. Another thread can replace the descriptor between a check and the
/// use, and between the opening and the first check. Both are well below a microsecond. And the
/// application can close the descriptor, and open the same file at the same number. Device and
/// inode are the same then, so the application's descriptor is used and closed.
///
/// Cost of a check: one system call, about 0.2 µs.
#[derive(Debug)]
pub(crate) struct SharedFile {
    /// `None` only while the value is locked or dropped.
    file: Option<OpenFile>,
    identity: FileIdentity,
}

#[derive(Debug)]
enum OpenFile {
    Unlocked(File),
    Locked(Flock<File>),
}

impl OpenFile {
    fn get(&self) -> &File {
        match self {
            Self::Unlocked(file) => file,
            Self::Locked(file) => file,
        }
    }
}

impl SharedFile {
    /// Opens a file.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn open(options: &OpenOptions, path: &Path) -> io::Result<Self> {
        Self::with_status(options.open(path)?).map(|(file, _)| file)
    }

    /// Opens a regular file for reading. Opening a pipe could wait for a writer, and opening a
    /// device could change its state.
    ///
    /// # Errors
    /// `InvalidInput` if the file is not a regular one; otherwise the error of the operating
    /// system.
    pub(crate) fn open_regular(path: &Path) -> io::Result<Self> {
        let not_regular = || io::Error::from(io::ErrorKind::InvalidInput);
        if !std::fs::metadata(path)?.is_file() {
            return Err(not_regular());
        }
        // The path may lead to another file by now.
        let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits())
            .open(path)?;
        let (file, status) = Self::with_status(file)?;
        if !is_regular(&status) {
            return Err(not_regular());
        }
        Ok(file)
    }

    /// Opens a file, but not through a link. Does not wait for the other end of a pipe, and takes no
    /// terminal over.
    pub(super) fn open_no_link(options: &mut OpenOptions, path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        Self::open(options.custom_flags(flags.bits()), path)
    }

    /// Takes over a file that was just opened.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(super) fn new(file: File) -> io::Result<Self> {
        Self::with_status(file).map(|(file, _)| file)
    }

    fn with_status(file: File) -> io::Result<(Self, FileStat)> {
        match fstat(&file) {
            Ok(status) => {
                let file = Self {
                    file: Some(OpenFile::Unlocked(file)),
                    identity: FileIdentity::of(&status),
                };
                Ok((file, status))
            }
            // The application may have closed the descriptor.
            Err(error) => {
                std::mem::forget(file);
                Err(error.into())
            }
        }
    }

    /// Locks the file until it is dropped. Returns `None` if another process holds the lock, or if
    /// the application has closed the descriptor. A file system without locks leaves the file
    /// unlocked.
    pub(crate) fn lock(mut self) -> Option<Self> {
        self.checked().ok()?;
        if let Some(OpenFile::Unlocked(file)) = self.file.take() {
            let (file, refusal) = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(file) => (OpenFile::Locked(file), None),
                Err((file, refusal)) => (OpenFile::Unlocked(file), Some(refusal)),
            };
            self.file = Some(file);
            if refusal == Some(Errno::EWOULDBLOCK) {
                return None;
            }
        }
        Some(self)
    }

    /// Gives the lock up, if the file has it.
    pub(super) fn unlock(&mut self) {
        self.file = self.file.take().map(|file| match file {
            OpenFile::Locked(file) => match file.unlock() {
                Ok(file) => OpenFile::Unlocked(file),
                Err((file, _)) => OpenFile::Locked(file),
            },
            unlocked => unlocked,
        });
    }

    /// Returns whether this process holds the file's lock.
    pub(crate) fn is_locked(&self) -> bool {
        matches!(self.file, Some(OpenFile::Locked(_)))
    }

    /// Returns the file for one call.
    ///
    /// # Errors
    /// `Other` if the application has closed the descriptor.
    pub(super) fn get(&self) -> io::Result<&File> {
        self.checked().map(|(file, _)| file)
    }

    /// Returns the descriptor, by which another process can open the file.
    ///
    /// # Errors
    /// `Other` if the application has closed the descriptor.
    pub(crate) fn descriptor(&self) -> io::Result<FileDescriptor> {
        let number = self.get()?.as_raw_fd();
        let FileIdentity { device, inode } = self.identity;
        Ok(FileDescriptor {
            number,
            device,
            inode,
        })
    }

    /// Returns whether this metadata is that of the file.
    pub(crate) fn is_file_of(&self, metadata: &std::fs::Metadata) -> bool {
        use std::os::unix::fs::MetadataExt;
        let FileIdentity { device, inode } = self.identity;
        (metadata.dev(), metadata.ino()) == (device, inode)
    }

    /// Returns the file's status.
    ///
    /// # Errors
    /// `Other` if the application has closed the descriptor.
    pub(crate) fn status(&self) -> io::Result<FileStat> {
        self.checked().map(|(_, status)| status)
    }

    /// Waits until the disk has the contents.
    ///
    /// # Errors
    /// `Other` if the application has closed the descriptor; otherwise the error of `fsync`.
    pub(crate) fn sync_all(&self) -> io::Result<()> {
        self.checked()?.0.sync_all()
    }

    /// Reads from a position, and returns the number of bytes.
    ///
    /// # Errors
    /// `Other` if the application has closed the descriptor, also if it has done so during the read;
    /// otherwise the error of `pread`.
    pub(crate) fn read_at(&self, bytes: &mut [u8], position: u64) -> io::Result<usize> {
        self.read_by(|file| file.read_at(bytes, position))
    }

    fn read_by(&self, read: impl FnOnce(&File) -> io::Result<usize>) -> io::Result<usize> {
        let read = read(self.get()?);
        // If the descriptor was replaced just before, the bytes are those of another file.
        self.checked()?;
        read
    }

    /// Returns the file, if its descriptor still refers to it.
    fn checked(&self) -> io::Result<(&File, FileStat)> {
        let file = self.file.as_ref().ok_or_else(closed)?.get();
        status_of(file, self.identity).map(|status| (file, status))
    }
}

fn closed() -> io::Error {
    io::Error::other("the application has closed the file's descriptor")
}

/// Returns the status of the file with this identity, if the descriptor still refers to it.
fn status_of(descriptor: &impl AsFd, identity: FileIdentity) -> io::Result<FileStat> {
    match fstat(descriptor) {
        Ok(status) if FileIdentity::of(&status) == identity => Ok(status),
        _ => Err(closed()),
    }
}

impl Read for &SharedFile {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.read_by(|mut file| file.read(bytes))
    }
}

impl Write for &SharedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.get()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for SharedFile {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        (&*self).read(bytes)
    }
}

impl Seek for SharedFile {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.checked()?.0.seek(position)
    }
}

impl Write for SharedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.checked()?.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        let is_ours = self.checked().is_ok();
        let Some(file) = self.file.take() else {
            return;
        };
        let number = file.get().as_raw_fd();
        // In a debug build, dropping a `File` aborts the process if the descriptor is not open.
        std::mem::forget(file);
        if is_ours {
            let _ = nix::unistd::close(number);
        }
    }
}

/// A folder whose descriptor is treated like that of a [`SharedFile`].
#[derive(Debug)]
pub(super) struct SharedFolder {
    /// `None` only while the value is dropped.
    folder: Option<Dir>,
    identity: FileIdentity,
}

impl SharedFolder {
    /// Opens a folder.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let folder = Dir::open(path, flags, Mode::empty())?;
        match fstat(&folder) {
            Ok(status) => Ok(Self {
                identity: FileIdentity::of(&status),
                folder: Some(folder),
            }),
            Err(error) => {
                std::mem::forget(folder);
                Err(error.into())
            }
        }
    }
}

impl Iterator for SharedFolder {
    type Item = OsString;

    /// Returns the name of the next file, `.` and `..` among them. Ends at an error, and if the
    /// application has closed the descriptor.
    fn next(&mut self) -> Option<OsString> {
        let folder = self.folder.as_mut()?;
        status_of(folder, self.identity).ok()?;
        let mut entries = folder.iter();
        let entry = entries.next();
        // Dropped, it would begin anew.
        std::mem::forget(entries);
        // If the descriptor was replaced just before, the names are those of another folder.
        status_of(folder, self.identity).ok()?;
        let name = entry?.ok()?.file_name().to_bytes().to_vec();
        Some(OsString::from_vec(name))
    }
}

impl Drop for SharedFolder {
    fn drop(&mut self) {
        if let Some(folder) = self.folder.take()
            && status_of(&folder, self.identity).is_err()
        {
            // Its memory stays allocated.
            std::mem::forget(folder);
        }
    }
}

/// Returns whether the status is that of a regular file.
pub(crate) fn is_regular(status: &FileStat) -> bool {
    status.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits()
}

/// Reads a small file. Returns no bytes if that fails.
pub(crate) fn read_bytes(path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = SharedFile::open(OpenOptions::new().read(true), Path::new(path))
        .and_then(|mut file| file.read_to_end(&mut bytes));
    if read.is_err() {
        bytes.clear();
    }
    bytes
}

/// Reads a small text file. Returns an empty text if that fails.
pub(crate) fn read_text(path: &str) -> String {
    String::from_utf8(read_bytes(path)).unwrap_or_default()
}

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

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, OwnedFd};

    use nix::unistd::dup2;

    use super::*;

    #[test]
    fn file_whose_descriptor_was_replaced_is_neither_used_nor_closed() {
        let mut file = SharedFile::open_regular(Path::new("/proc/self/exe")).expect("a file");
        assert_eq!(file.read(&mut [0; 4]).expect("a header"), 4);
        // The application closes the descriptor, and its next file gets the number.
        let Some(OpenFile::Unlocked(opened)) = file.file.take() else {
            panic!("it is not locked");
        };
        let mut descriptor = OwnedFd::from(opened);
        let foreign = File::open("/dev/zero").expect("a device");
        dup2(&foreign, &mut descriptor).expect("a copy");
        let number = descriptor.as_raw_fd();
        file.file = Some(OpenFile::Unlocked(descriptor.into()));
        assert!(file.read(&mut [0; 4]).is_err() && file.read_at(&mut [0; 4], 0).is_err());
        assert!(file.seek(SeekFrom::Start(0)).is_err() && file.status().is_err());
        drop(file);
        let target = std::fs::read_link(format!("/proc/self/fd/{number}"));
        let target = target.expect("the application's file is still open");
        assert_eq!(target.as_os_str(), "/dev/zero");
    }

    #[test]
    fn open_regular_rejects_other_files() {
        let (end, write_end) = io::pipe().expect("a pipe");
        let path = format!("/proc/self/fd/{}", end.as_raw_fd());
        // Opening a pipe for reading waits if it has no writer.
        drop(write_end);
        for path in [path.as_str(), "/dev/null", "/proc/self/fd"] {
            let error = SharedFile::open_regular(Path::new(path)).expect_err("not a regular file");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path}");
        }
    }
}
