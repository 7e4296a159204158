//! A file without a name, for data that arrives in parts and is read as a whole, perhaps by the
//! program that replaces this one by `exec`.

use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::{close, geteuid};

use crate::platform::memory::file_mapping::FileMapping;
use crate::platform::shared_file::{SharedFile, is_regular};
use crate::platform::temporary_file::TemporaryFile;

/// A file that only this process can reach. The kernel frees it with the last reference, so a killed
/// process leaves nothing behind.
#[derive(Debug)]
pub(crate) struct SpoolFile {
    file: TemporaryFile,
    bytes: u64,
}

impl SpoolFile {
    /// Creates an empty file on a disk or, where no folder allows that, in memory.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn create() -> io::Result<Self> {
        Ok(Self {
            file: TemporaryFile::create_elsewhere()?,
            bytes: 0,
        })
    }

    /// Appends these bytes.
    ///
    /// # Errors
    /// The error of the operating system, such as that of a full disk. The file then has a part of
    /// the bytes.
    pub(crate) fn append(&mut self, part: &[u8]) -> io::Result<()> {
        self.file.write_all(part)?;
        self.bytes += part.len() as u64;
        Ok(())
    }

    /// Returns the number of bytes that were appended.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the file, to pass it on.
    pub(crate) fn as_file(&self) -> &SharedFile {
        self.file.as_file()
    }

    /// Maps the content, and closes the file.
    ///
    /// # Errors
    /// The error of the operating system, or of an empty file.
    pub(crate) fn into_mapping(self) -> io::Result<FileMapping> {
        FileMapping::of(self.file.as_file())
    }
}

impl Write for SpoolFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.append(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A descriptor that stays open across `exec`. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct PassedFile {
    file: SharedFile,
}

impl PassedFile {
    /// Duplicates the descriptor of a file, so that it stays open across `exec`. If another thread
    /// starts a process during this time, that process inherits the file, too.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn new(spool: &SpoolFile) -> io::Result<Self> {
        let file = SharedFile::new(spool.as_file().get()?.try_clone()?)?;
        fcntl(file.get()?, FcntlArg::F_SETFD(FdFlag::empty()))?;
        Ok(Self { file })
    }

    /// Returns the text from which [`take_passed_file`] finds the file.
    ///
    /// # Errors
    /// `Other` if the application has closed the descriptor.
    pub(crate) fn to_text(&self) -> io::Result<String> {
        let status = self.file.status()?;
        let number = self.file.get()?.as_raw_fd();
        Ok(format!("{number}:{}:{}", status.st_dev, status.st_ino))
    }
}

/// Maps the file that an earlier image of this process has passed on, and closes its descriptor.
/// Returns `None` if the file does not exist, has a name, or belongs to another user.
pub(crate) fn take_passed_file(text: &str) -> Option<FileMapping> {
    let (number, identity) = text.split_once(':')?;
    let (device, inode) = identity.split_once(':')?;
    let identity: (u64, u64) = (device.parse().ok()?, inode.parse().ok()?);
    let number: i32 = number.parse().ok()?;
    let path = PathBuf::from(format!("/proc/thread-self/fd/{number}"));
    let file = SharedFile::open_regular(&path).ok()?;
    let status = file.status().ok()?;
    let is_passed = (status.st_dev, status.st_ino) == identity
        && is_regular(&status)
        && status.st_nlink == 0
        && status.st_uid == geteuid().as_raw();
    if !is_passed {
        return None;
    }
    let mapping = FileMapping::of(&file).ok();
    let is_open = std::fs::metadata(&path).is_ok_and(|now| (now.dev(), now.ino()) == identity);
    if is_open {
        let _ = close(number);
    }
    mapping
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapping_holds_all_parts_in_order() {
        let mut spool = SpoolFile::create().expect("a file");
        for part in ["first ", "", "second"] {
            spool.append(part.as_bytes()).expect("written");
        }
        assert_eq!(spool.bytes(), 12);
        let mapping = spool.into_mapping().expect("mapped");
        assert_eq!(&mapping[..], b"first second");
    }

    #[test]
    fn empty_file_has_no_mapping() {
        let spool = SpoolFile::create().expect("a file");
        assert!(spool.into_mapping().is_err());
    }

    #[test]
    fn passed_file_is_taken_once() {
        let mut spool = SpoolFile::create().expect("a file");
        spool.append(b"before").expect("written");
        let passed = PassedFile::new(&spool).expect("passed");
        let text = passed.to_text().expect("open");
        // The new image knows the number only.
        std::mem::forget(passed);
        drop(spool);
        let mapping = take_passed_file(&text).expect("the file");
        assert_eq!(&mapping[..], b"before");
        assert!(
            take_passed_file(&text).is_none(),
            "its descriptor is closed"
        );
    }

    #[test]
    fn other_files_are_left_alone() {
        let named = std::fs::File::open("/proc/self/exe").expect("this program");
        let metadata = named.metadata().expect("its status");
        let text = format!(
            "{}:{}:{}",
            named.as_raw_fd(),
            metadata.dev(),
            metadata.ino()
        );
        assert!(take_passed_file(&text).is_none());
        assert!(named.metadata().is_ok(), "it is still open");
        for text in ["", "1", "1:2", "x:1:2", "-1:1:2", "99999:1:2", "1:2:3:4"] {
            assert!(take_passed_file(text).is_none(), "{text}");
        }
    }
}
