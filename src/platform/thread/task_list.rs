//! The threads of this process as the kernel lists them, in `/proc/self/task`.
//!
//! The kernel counts the threads in the folder's number of links. So one system call tells whether
//! the list has probably changed.
//!
//! **Contract of the calls** (cited below):
//! - *own buffer*: the kernel writes to a buffer that the caller owns, within its length.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::platform::shared_file::SharedFile;
use crate::platform::thread::kept_file::KeptFile;
use crate::platform::thread::own_descriptors::{has_own_descriptors, on_own_descriptors};
use crate::platform::thread::own_threads::is_own_thread;
use crate::types::ThreadId;

const PATH: &str = "/proc/self/task";
/// Links of the folder itself, and of the one above it.
const OWN_LINKS: u64 = 2;
/// Size of the buffer for entries of the folder, in bytes. An entry takes 24 or 32.
const BUFFER_BYTES: usize = 8 << 10;
/// Offsets in an entry: its length in two bytes, and its name, which ends with a zero.
const LENGTH_OFFSET: usize = 16;
const NAME_OFFSET: usize = 19;

/// The list of the process's threads. Always used by the same thread, which keeps the folder open
/// if it has a descriptor table of its own.
#[derive(Debug, Default)]
pub(crate) struct TaskList(Option<File>);

impl TaskList {
    /// Returns the number of threads. Cost: about 0.5 µs, or 2 µs if the folder is not open.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn count(&self) -> io::Result<u64> {
        let status = match &self.0 {
            Some(folder) => folder.metadata()?,
            None => std::fs::metadata(PATH)?,
        };
        Ok(status.nlink().saturating_sub(OWN_LINKS))
    }

    /// Replaces the contents of `threads` by the ids of all threads, unordered. A thread that
    /// starts or ends during the call may be missing. Cost: about 0.4 µs for each thread.
    ///
    /// # Errors
    /// The error of the operating system, or `OutOfMemory`.
    pub(crate) fn read(&mut self, threads: &mut Vec<ThreadId>) -> io::Result<()> {
        threads.clear();
        if !has_own_descriptors() {
            let folder = SharedFile::open(File::options().read(true), Path::new(PATH))?;
            return read_entries(folder.get()?, threads);
        }
        // Opened anew each time, because a sandbox may forbid to rewind it.
        let folder = self.0.insert(File::open(PATH)?);
        read_entries(folder, threads)
    }
}

fn read_entries(folder: &File, threads: &mut Vec<ThreadId>) -> io::Result<()> {
    let mut buffer = [0u8; BUFFER_BYTES];
    loop {
        // SAFETY: *own buffer*. `nix` reads folders only through the C library's streams, which
        // allocate.
        let read = unsafe {
            libc::syscall(
                libc::SYS_getdents64,
                folder.as_raw_fd(),
                buffer.as_mut_ptr(),
                BUFFER_BYTES,
            )
        };
        let Ok(read) = usize::try_from(read) else {
            return Err(io::Error::last_os_error());
        };
        if read == 0 {
            return Ok(());
        }
        let mut entries = &buffer[..read.min(BUFFER_BYTES)];
        while let Some((name, rest)) = next_entry(entries) {
            entries = rest;
            let number = std::str::from_utf8(name)
                .ok()
                .and_then(|name| name.parse().ok());
            // The other entries are `.` and `..`.
            let Some(number) = number else { continue };
            threads
                .try_reserve(1)
                .map_err(|_| io::ErrorKind::OutOfMemory)?;
            threads.push(ThreadId::from_number(number));
        }
    }
}

/// Returns the name of the first entry, and the entries after it.
fn next_entry(entries: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = entries.get(LENGTH_OFFSET..LENGTH_OFFSET + 2)?;
    let length = usize::from(u16::from_ne_bytes(length.try_into().ok()?));
    let (entry, rest) = entries.split_at_checked(length)?;
    let name = entry.get(NAME_OFFSET..)?;
    let end = name.iter().position(|&byte| byte == 0)?;
    Some((&name[..end], rest))
}

/// Reads the name of a thread of this process as the system has it, of at most 15 bytes. `None` if
/// the thread has ended or the system does not say. Cost: about 6 µs.
pub(crate) fn read_thread_name(thread: ThreadId) -> Option<String> {
    // More than the 15 bytes of a name and a line break.
    let mut text = [0; 64];
    let path = || format!("{PATH}/{}/comm", thread.to_number());
    let length = KeptFile::default().read(path, &mut text).ok()?;
    let name = text[..length]
        .strip_suffix(b"\n")
        .unwrap_or(&text[..length]);
    Some(String::from_utf8_lossy(name).into_owned())
}

/// Returns the ids and names of the process's threads that are neither `known` nor the profiler's, of
/// at most 1,024 of them. Cost: three system calls for each thread.
pub(crate) fn names_of_other_threads(mut known: Vec<ThreadId>) -> Vec<(ThreadId, String)> {
    const MAX_THREADS: usize = 1024;
    known.sort_unstable();
    on_own_descriptors(move || {
        let mut threads = Vec::new();
        // Without the list, no thread is named.
        let _ = TaskList::default().read(&mut threads);
        threads.truncate(MAX_THREADS);
        threads.retain(|id| known.binary_search(id).is_err() && !is_own_thread(*id));
        let named = threads.into_iter().filter_map(|id| {
            let name = read_thread_name(id).filter(|name| !name.is_empty())?;
            Some((id, name))
        });
        named.collect()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::platform::identity::current_thread_id;
    use crate::platform::thread::own_descriptors::use_own_descriptors;

    /// Reads the list while a named thread lives.
    fn list_beside_a_thread() {
        let (is_listed, has_begun) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let barriers = (Arc::clone(&is_listed), Arc::clone(&has_begun));
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("listed".to_owned())
            .spawn(move || {
                sender
                    .send(current_thread_id())
                    .expect("the test receives it");
                barriers.1.wait();
                barriers.0.wait();
            });
        let id = receiver.recv().expect("an id");
        has_begun.wait();
        let (mut list, mut threads) = (TaskList::default(), Vec::new());
        for _ in 0..2 {
            list.read(&mut threads).expect("a list");
            assert!(threads.contains(&id) && threads.contains(&current_thread_id()));
            assert!(list.count().expect("a number") >= 2);
        }
        assert_eq!(read_thread_name(id).as_deref(), Some("listed"));
        is_listed.wait();
        thread.expect("a thread").join().expect("no panic");
        // The kernel wakes the joining thread a little before it removes the ended one.
        let end = Instant::now() + Duration::from_secs(60);
        while read_thread_name(id).as_deref() == Some("listed") {
            assert!(Instant::now() < end, "the thread is still there");
            std::thread::yield_now();
        }
    }

    #[test]
    fn task_list_has_the_threads_of_the_process() {
        list_beside_a_thread();
        let beside_own_descriptors = || {
            assert!(use_own_descriptors());
            list_beside_a_thread();
        };
        std::thread::spawn(beside_own_descriptors)
            .join()
            .expect("no panic");
    }

    #[test]
    fn next_entry_ends_at_a_cut_entry() {
        let mut entry = [0u8; 24];
        entry[LENGTH_OFFSET] = 24;
        entry[NAME_OFFSET..NAME_OFFSET + 2].copy_from_slice(b"77");
        assert_eq!(next_entry(&entry), Some((b"77".as_slice(), b"".as_slice())));
        assert_eq!(next_entry(&entry[..20]), None);
        assert_eq!(next_entry(&[]), None);
    }
}
