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
    /// Address space, without what the C library has reserved for blocks. Each of the profiler's
    /// slots takes 184 KiB, and 1.2 MiB once its thread's stack was deep.
    pub virtual_kib: u64,
    /// Blocks of the C library's allocator that are in use.
    pub allocated_kib: u64,
    /// Address space that the C library has reserved for such blocks. It reserves as much as the
    /// largest profile that was read back needed, and cannot return what lies before a block that
    /// is in use.
    pub reserved_kib: u64,
}

/// Address space of one of the C library's heaps, from which a thread other than the first may
/// allocate.
const HEAP_KIB: u64 = 64 << 10;

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
        let reserved_kib = reserved_kib();
        // SAFETY: the call reads the allocator's counters.
        let blocks = unsafe { libc::mallinfo2() };
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
            virtual_kib: kib("VmSize:").saturating_sub(reserved_kib),
            allocated_kib: ((blocks.uordblks + blocks.hblkhd) >> 10) as u64,
            reserved_kib,
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

/// Returns the address space in KiB that the C library has reserved for blocks.
fn reserved_kib() -> u64 {
    let mut start: *mut libc::c_char = std::ptr::null_mut();
    let mut length = 0;
    // SAFETY: the stream writes into memory of its own, which `start` and `length` describe once it
    // is closed. Nothing uses the stream afterwards.
    let report = unsafe {
        let stream = libc::open_memstream(&mut start, &mut length);
        if stream.is_null() {
            return 0;
        }
        libc::malloc_info(0, stream);
        libc::fclose(stream);
        let report = std::slice::from_raw_parts(start.cast::<u8>(), length);
        let report = String::from_utf8_lossy(report).into_owned();
        libc::free(start.cast());
        report
    };
    let values = |name: &str| {
        let start = format!("<{name} size=\"");
        let rest = report.split(&start).skip(1);
        let values = rest.filter_map(|rest| rest.split('"').next()?.parse::<u64>().ok());
        values.collect::<Vec<_>>()
    };
    let heaps: u64 = values("aspace type=\"subheaps\"").iter().sum();
    // The report begins with the area of the first thread, which is not a heap.
    let of_first_thread = values("system type=\"current\"").first().copied();
    heaps * HEAP_KIB + of_first_thread.unwrap_or(0) / 1024
}

fn list(folder: &str, describe: impl Fn(&str) -> String) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<String> = entries
        .map(|entry| describe(&entry.path().display().to_string()))
        .collect();
    found.sort();
    found
}
