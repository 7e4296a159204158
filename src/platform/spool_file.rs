//! A file without a name, for data that arrives in parts and is read as a whole.

use std::io::{self, Write};

use crate::platform::memory::FileMapping;
use crate::platform::output::TemporaryFile;
use crate::platform::shared_file::SharedFile;

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
}
