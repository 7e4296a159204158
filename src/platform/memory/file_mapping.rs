//! A file that is mapped for reading.
//!
//! **Contract** (cited below):
//! - *ours*: the mapping is private and read-only, is created here, and is unmapped only when the
//!   value is dropped;
//! - *any bytes*: the kernel fills the pages from the file, and another process may change the file
//!   while it is mapped. The readers accept any bytes, and read none of them twice to decide about
//!   memory. A process that truncates the mapped file ends this process (`SIGBUS`); compilers and
//!   package managers replace files instead. A mapping that is kept is checked before each use
//!   ([`FileMapping::is_unchanged`]), so that only a change during the use counts.

use std::io;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::stat::{FileStat, stat};

use crate::platform::shared_file::{FileIdentity, SharedFile};

/// The content of a file.
#[derive(Debug)]
pub(crate) struct FileMapping {
    start: NonNull<u8>,
    bytes: NonZeroUsize,
    /// Where the file was opened; empty if it is not known.
    path: PathBuf,
    /// The file's status when it was mapped.
    status: FileStat,
}

// SAFETY: *ours*: a mapping belongs to the process, not to a thread.
unsafe impl Send for FileMapping {}
// SAFETY: *ours*: a shared reference only reads, and the mapping is read-only.
unsafe impl Sync for FileMapping {}

impl FileMapping {
    /// Maps a regular file. The file is opened once, without waiting, and checked and mapped by its
    /// descriptor. Afterwards it is closed, and the mapping remains.
    ///
    /// # Errors
    /// `InvalidInput` if the file is not a regular one; otherwise the error of the operating
    /// system, or of the conversion of a length, which an empty file does not have.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut mapping = Self::of(&SharedFile::open_regular(path)?)?;
        path.clone_into(&mut mapping.path);
        Ok(mapping)
    }

    /// Maps an open regular file. The mapping remains when the file is closed.
    ///
    /// # Errors
    /// The error of the operating system, or of the conversion of a length, which an empty file
    /// does not have.
    pub(crate) fn of(file: &SharedFile) -> io::Result<Self> {
        let status = file.status()?;
        let length = usize::try_from(status.st_size).map_err(io::Error::other)?;
        let bytes = NonZeroUsize::try_from(length).map_err(io::Error::other)?;
        // SAFETY: a new mapping at an address chosen by the kernel does not affect memory in use.
        let start = unsafe {
            let (access, flags) = (ProtFlags::PROT_READ, MapFlags::MAP_PRIVATE);
            mmap(None, bytes, access, flags, file.get()?, 0)
        }?;
        Ok(Self {
            start: start.cast(),
            bytes,
            path: PathBuf::new(),
            status,
        })
    }

    /// Returns whether the file was not written to since it was mapped, as far as its path tells.
    /// Another file at the path, or none, leaves the mapped one as it is.
    pub(crate) fn is_unchanged(&self) -> bool {
        // A copy can set the time of the content back, but not that of the change.
        let content = |file: &FileStat| (file.st_size, file.st_ctime, file.st_ctime_nsec);
        let is_same = |file: &FileStat| FileIdentity::of(file) == FileIdentity::of(&self.status);
        match stat(&self.path) {
            Ok(now) => !is_same(&now) || content(&now) == content(&self.status),
            Err(error) => error == Errno::ENOENT,
        }
    }
}

impl Deref for FileMapping {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: *ours*, so the bytes are mapped while the value lives; *any bytes*.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes.get()) }
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // SAFETY: *ours*: `of` created the mapping with this length, and nothing uses it after
        // the drop.
        let _ = unsafe { munmap(self.start.cast(), self.bytes.get()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::test_library::TestFolder;

    #[test]
    fn file_mapping_holds_the_content_of_a_regular_file() {
        let folder = TestFolder::new("mapped-files");
        let path = folder.path().join("file");
        std::fs::write(&path, b"content").expect("written");
        let mapping = FileMapping::open(&path).expect("a mapping");
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(&mapping[..], b"content");
        std::fs::write(&path, b"").expect("written");
        assert!(FileMapping::open(&path).is_err(), "an empty file");
        let error = FileMapping::open(folder.path()).expect_err("a folder");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn file_mapping_knows_whether_the_file_was_written_to() {
        let folder = TestFolder::new("written-files");
        let [path, other] = ["file", "other"].map(|name| folder.path().join(name));
        std::fs::write(&path, b"content").expect("written");
        let mapping = FileMapping::open(&path).expect("a mapping");
        assert!(mapping.is_unchanged());
        // As a package manager replaces a file.
        std::fs::write(&other, b"another").expect("written");
        std::fs::rename(&other, &path).expect("renamed");
        assert!(mapping.is_unchanged(), "it is another file");
        std::fs::remove_file(&path).expect("removed");
        assert!(mapping.is_unchanged(), "it is still mapped");

        std::fs::write(&path, b"content").expect("written");
        let mapping = FileMapping::open(&path).expect("a mapping");
        std::fs::write(&path, b"content and more").expect("written");
        assert!(!mapping.is_unchanged());
    }
}
