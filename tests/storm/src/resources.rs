//! The process's resources: threads, descriptors, memory.

use std::fs;
use std::time::{Duration, Instant};

/// The resources at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Resources {
    pub threads: Vec<String>,
    pub descriptors: Vec<String>,
    /// Anonymous memory. Pages of files, such as those with debug information, can be dropped by
    /// the kernel.
    pub resident_kib: u64,
    /// Address space. Each of the profiler's slots takes 184 KiB, and 1.2 MiB once its thread's stack
    /// was deep.
    pub virtual_kib: u64,
}

impl Resources {
    /// Returns the current resources, after the allocator has released its free memory.
    pub fn now() -> Self {
        // SAFETY: the call releases only memory that is not in use.
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

    /// Returns the resources once there are no more threads and descriptors than in `before`, or
    /// after five seconds. A joined thread may still be listed for a moment.
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

/// Makes all threads share few heaps, which return free memory. With one heap for every thread that
/// resolves names, a process would grow for minutes without a leak. The C library raises the
/// threshold from which on it returns free memory to up to 64 MiB, unless it is set.
pub fn share_heaps() {
    const TRIM_BYTES: libc::c_int = 128 << 10;
    // SAFETY: the calls set parameters of the allocator.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_BYTES);
    }
}

fn list(folder: &str, describe: impl Fn(&str) -> String) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<String> = entries
        .map(|entry| describe(&entry.path().display().to_string()))
        .collect();
    found.sort();
    found
}
