//! What the process holds: threads, descriptors, memory.

use std::fs;
use std::time::{Duration, Instant};

/// What it held at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Resources {
    pub threads: Vec<String>,
    pub descriptors: Vec<String>,
    /// Memory of the process's own; pages of files, which debug information is read from, are the kernel's to drop.
    pub resident_kib: u64,
    /// Address space; each of the profiler's slots takes as much of it as its thread's stack.
    pub virtual_kib: u64,
}

impl Resources {
    /// Now, with what the allocator keeps for later given back first.
    pub fn now() -> Self {
        // SAFETY: touches no memory that is in use.
        unsafe { libc::malloc_trim(0) };
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let kib = |name: &str| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or_default();
            line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
        };
        Self {
            threads: list("/proc/self/task", |path| {
                fs::read_to_string(format!("{path}/comm"))
                    .unwrap_or_default()
                    .trim()
                    .to_owned()
            }),
            descriptors: list("/proc/self/fd", |path| {
                fs::read_link(path)
                    .map_or_else(|_| "?".to_owned(), |target| target.display().to_string())
            }),
            resident_kib: kib("RssAnon:"),
            virtual_kib: kib("VmSize:"),
        }
    }

    /// Once there are no more threads and descriptors than `before`, or when that has not come in five seconds: a thread
    /// that was joined may be in the list for a moment still.
    pub fn settled(before: &Self) -> Self {
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            let now = Self::now();
            let is_settled = now.threads.len() <= before.threads.len()
                && now.descriptors.len() <= before.descriptors.len();
            if is_settled || Instant::now() > end {
                return now;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Has all threads share few heaps. Each keeps what its busiest moment took: with one for every thread that names
/// functions, a process grows for minutes though nothing is lost.
pub fn share_heaps() {
    // SAFETY: sets a number of the allocator's.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 2) };
}

fn list(folder: &str, describe: impl Fn(&str) -> String) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<String> = entries
        .map(|entry| describe(&entry.path().display().to_string()))
        .collect();
    found.sort();
    found
}
