//! A file in `/proc` or `/sys` that one thread reads again and again, such as that with the memory
//! of the process that is in RAM.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::unistd::{SysconfVar, sysconf};

use crate::platform::procfs::parse_resident_pages;
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

/// Size of the buffer for the file, in bytes: it is a line of 7 numbers.
const FILE_BYTES: usize = 256;

/// Reads the resident memory of the process, always on the same thread.
#[derive(Debug, Default)]
pub(crate) struct ResidentMemory {
    file: KeptFile,
}

impl ResidentMemory {
    /// Returns the resident memory of the process, in bytes; `None` if the kernel does not say.
    /// Cost: about 1 µs if the file is open, otherwise 5 µs.
    pub(crate) fn bytes(&mut self) -> Option<u64> {
        let mut text = [0; FILE_BYTES];
        // The main thread may have ended. The process's own file then says that it has no memory.
        let path = || "/proc/thread-self/statm";
        let length = self.file.read(path, &mut text).ok()?;
        let page_bytes = u64::try_from(sysconf(SysconfVar::PAGE_SIZE).ok()??).ok()?;
        parse_resident_pages(&text[..length])?.checked_mul(page_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::thread::own_descriptors::use_own_descriptors;

    /// Other tests allocate and free memory at the same time, so only the memory held here is
    /// known.
    fn check_held_memory() {
        const BYTES: u64 = 64 << 20;
        let mut memory = ResidentMemory::default();
        let filled = vec![1u8; BYTES as usize];
        // The second time from the file that may be kept.
        for _ in 0..2 {
            let resident = memory.bytes().expect("statm");
            assert!(resident >= BYTES, "{resident} bytes");
        }
        std::hint::black_box(&filled);
    }

    #[test]
    fn resident_memory_contains_memory_that_was_written() {
        check_held_memory();
        let beside_own_descriptors = std::thread::spawn(|| {
            assert!(use_own_descriptors());
            check_held_memory();
        });
        beside_own_descriptors.join().expect("thread");
    }
}
