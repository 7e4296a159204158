//! A file that is mapped for writing, so that its content outlives the process.
//!
//! **Contract** (cited below):
//! - *ours*: the mapping is created here, and is unmapped only when the value is dropped;
//! - *reserved*: the file system has reserved the space of the bytes before they are stored to, or
//!   the file is in memory, whose pages come when they are needed, as those of any other memory do.
//!   So a store finds space, except where ARCHITECTURE.md says so. A process that truncates the
//!   mapped file ends this process (`SIGBUS`); only its owner may open it.

use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, munmap};

use crate::platform::sandbox::may_make_uncommon_call;
use crate::platform::temporary_file::TemporaryFile;
use crate::util::{Mapping, SharedMemory, WORD_BYTES};

/// A shared mapping of a file.
#[derive(Debug)]
struct SharedMapping {
    start: NonNull<u8>,
    bytes: NonZeroUsize,
    space: Space,
}

/// When a file's space is reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Space {
    /// Never: the file is in memory, so its pages can be given back.
    InMemory,
    /// Before the bytes are stored to.
    OnDemand,
    /// From the beginning.
    All,
}

impl SharedMapping {
    /// Returns the address of a range; `None` if it exceeds the mapping.
    fn part(&self, position: usize, bytes: usize) -> Option<NonNull<u8>> {
        let end = position.checked_add(bytes)?;
        // SAFETY: *ours*: the position lies inside the mapping.
        (end <= self.bytes.get()).then(|| unsafe { self.start.add(position) })
    }
}

// SAFETY: *ours*: a mapping belongs to the process, not to a thread.
unsafe impl Send for SharedMapping {}
// SAFETY: a shared reference exposes nothing.
unsafe impl Sync for SharedMapping {}

impl Mapping for SharedMapping {
    fn reserve(&self, position: usize, bytes: usize) -> bool {
        /// A multiple of the size of a page on every machine.
        const STEP_BYTES: usize = 64 << 10;
        if self.space != Space::OnDemand {
            return true;
        }
        let first = position - position % STEP_BYTES;
        let bytes = position + bytes - first;
        self.part(first, bytes).is_some_and(|start| {
            // SAFETY: *ours*; the call changes no byte. Where a store would end the process, it fails.
            unsafe { madvise(start.cast(), bytes, MmapAdvise::MADV_POPULATE_WRITE) }.is_ok()
        })
    }

    fn release(&self, position: usize, bytes: usize) {
        if self.space == Space::InMemory
            && let Some(start) = self.part(position, bytes)
        {
            // SAFETY: the caller says that nothing refers to the bytes, which become zero.
            let _ = unsafe { madvise(start.cast(), bytes, MmapAdvise::MADV_REMOVE) };
        }
    }
}

/// Maps an empty file, for which the disk has space. The memory is zeroed. [`SharedMemory::reserve`]
/// reserves the space before the first store; on a kernel before 5.14, and in a sandbox, all of it is
/// reserved here.
///
/// # Errors
/// The error of the operating system: the disk may be full, for example.
pub(crate) fn map_new_file(file: &TemporaryFile, bytes: usize) -> io::Result<SharedMemory> {
    file.set_length(bytes)?;
    if may_make_uncommon_call() {
        file.check_space(bytes)?;
        let memory = map(file, bytes, Space::OnDemand)?;
        if memory.reserve(0, WORD_BYTES) {
            return Ok(memory);
        }
    }
    file.reserve(bytes)?;
    map(file, bytes, Space::All)
}

/// Maps an empty file in memory. A page takes memory only once it is written.
///
/// # Errors
/// The error of the operating system.
pub(crate) fn map_memory_file(file: &TemporaryFile, bytes: usize) -> io::Result<SharedMemory> {
    file.set_length(bytes)?;
    map(file, bytes, Space::InMemory)
}

fn map(file: &TemporaryFile, bytes: usize, space: Space) -> io::Result<SharedMemory> {
    let length = NonZeroUsize::try_from(bytes).map_err(io::Error::other)?;
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping at an address chosen by the kernel does not affect memory in use.
    let start = unsafe {
        let file = file.as_file().get()?;
        mmap(None, length, access, MapFlags::MAP_SHARED, file, 0)
    }?;
    // A core dump would contain what the file has. A refusal only makes the dump larger.
    // SAFETY: the range is the mapping created above.
    let _ = unsafe { madvise(start, bytes, MmapAdvise::MADV_DONTDUMP) };
    let mapping = SharedMapping {
        start: start.cast(),
        bytes: length,
        space,
    };
    // SAFETY: *mapped*: *ours* and *reserved*, and a mapping begins at a page; *words*: only the
    // result gives out the address.
    Ok(unsafe { SharedMemory::new(start.cast(), bytes, Box::new(mapping)) })
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: *ours*: `map` created the mapping with this length, and nothing uses it
        // after the drop.
        let _ = unsafe { munmap(self.start.cast(), self.bytes.get()) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::platform::test_library::TestFolder;

    #[test]
    fn pages_of_a_file_in_memory_are_given_back() {
        let file = TemporaryFile::create_in_memory().expect("a file");
        let memory = map_memory_file(&file, 8192).expect("a mapping");
        let blocks = || file.as_file().status().expect("open").st_blocks;
        assert_eq!(blocks(), 0);
        for position in [0, 4096] {
            memory.word(position).store(1, Ordering::Relaxed);
        }
        let both = blocks();
        memory.release(4096, 4096);
        assert_eq!(blocks() * 2, both);
        assert_eq!(memory.word(0).load(Ordering::Relaxed), 1);
        assert_eq!(memory.word(4096).load(Ordering::Relaxed), 0);
    }

    #[test]
    fn file_holds_what_was_stored_and_is_published_once() {
        let folder = TestFolder::new("mapped-shared");
        let path = folder.path().join("file");
        let mut file = TemporaryFile::create_for(&path).expect("a file");
        let memory = map_new_file(&file, 8192).expect("a mapping");
        assert!(memory.reserve(4096, 8) && !memory.reserve(8192, 8));
        file.publish_new(&path).expect("published");
        memory.word(4096).store(u64::MAX, Ordering::Relaxed);
        let content = std::fs::read(&path).expect("the file");
        assert_eq!(content.len(), 8192);
        assert_eq!(content.iter().position(|byte| *byte != 0), Some(4096));
        assert!(file.is_at(&path));
        let mut other = TemporaryFile::create_for(&path).expect("a file");
        let error = other.publish_new(&path).expect_err("there is one");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(map_new_file(&other, usize::MAX >> 1).is_err());
    }
}
