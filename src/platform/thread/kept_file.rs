//! A file in `/proc` or `/sys` that one thread reads again and again.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::platform::shared_file::SharedFile;
use crate::platform::thread::own_descriptors::first_number_to_close;

/// Maximum number of descriptors that stay open: enough for two files of 64 threads that share few
/// processors, whose files are read on most ticks. A thread may have up to five. Each costs about 5
/// KiB of the kernel's memory.
const MAX_KEPT: i32 = 160;

/// A file that one thread reads from the beginning each time.
///
/// On a thread with a descriptor table of its own, the file stays open after the first read if few
/// files are open there. In the application's table it does not stay open.
#[derive(Debug, Default)]
pub(in crate::platform) struct KeptFile(Option<File>);

impl KeptFile {
    /// Reads the beginning of the file. `path` returns its path, and is called only to open it.
    /// Always called by the same thread.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(super) fn read<P: AsRef<Path>>(
        &mut self,
        path: impl FnOnce() -> P,
        text: &mut [u8],
    ) -> io::Result<usize> {
        self.read_below(MAX_KEPT, path, text)
    }

    /// Like [`KeptFile::read`], but the file stays open only if its descriptor is below
    /// `first_closed`.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(in crate::platform) fn read_below<P: AsRef<Path>>(
        &mut self,
        first_closed: i32,
        path: impl FnOnce() -> P,
        text: &mut [u8],
    ) -> io::Result<usize> {
        if let Some(file) = &self.0 {
            return file.read_at(text, 0);
        }
        let numbers_to_keep = first_number_to_close(first_closed);
        if numbers_to_keep == 0 {
            let file = SharedFile::open(OpenOptions::new().read(true), path().as_ref())?;
            return file.read_at(text, 0);
        }
        let file = File::open(path())?;
        let read = file.read_at(text, 0);
        self.0 = Some(file).filter(|file| file.as_raw_fd() < numbers_to_keep);
        read
    }
}
