//! The memory of the process that is in RAM.

use nix::unistd::{SysconfVar, sysconf};

use crate::platform::procfs::parse_resident_pages;
use crate::platform::thread::kept_file::KeptFile;

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
