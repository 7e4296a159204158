//! A process with little memory left: recording stops or continues with less, and the recorded data
//! can be saved.

mod address_space;
mod container;
mod exhausted;
mod exit_profiles;
mod helpers;
mod lists;
mod saving;
mod slots;

use std::fmt::Write as _;

use gekkota::{MarkerOptions, gecko_profiler_category};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

const MIB: u64 = 1 << 20;

/// Makes all threads allocate from the same memory. Otherwise glibc reserves 64 MiB for each, so that
/// a thread has memory that others lack.
const ONE_ARENA: (&str, &str) = ("MALLOC_ARENA_MAX", "1");

/// Size of the process's address space, in bytes.
fn mapped_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("the size");
    let pages: u64 = status
        .split(' ')
        .next()
        .and_then(|pages| pages.parse().ok())
        .expect("a number of pages");
    let page_bytes = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE);
    pages * page_bytes.expect("known").expect("known") as u64
}

/// Limits the process to this many bytes more than it has mapped.
fn limit_memory(more_bytes: u64) {
    let (_, hard) = getrlimit(Resource::RLIMIT_AS).expect("the limits");
    let limit = mapped_bytes() + more_bytes;
    setrlimit(Resource::RLIMIT_AS, limit, hard).expect("a lower limit");
}

/// Takes all memory that the allocator still has for the calling thread, and never frees it.
fn use_up_memory() {
    for bytes in [1 << 20, 64 << 10, 4 << 10, 512, 64, 16] {
        let take = || {
            let mut memory = Vec::<u8>::new();
            let is_taken = memory.try_reserve_exact(bytes).is_ok();
            std::mem::forget(std::hint::black_box(memory));
            is_taken
        };
        while take() {}
    }
}

/// Leaves this many bytes to the process. A limit alone would not take back what the
/// allocator has reserved.
fn leave_memory(bytes: u64) {
    let left = Vec::<u8>::with_capacity(bytes as usize);
    limit_memory(0);
    use_up_memory();
    drop(std::hint::black_box(left));
}

fn end_limit() {
    let (_, hard) = getrlimit(Resource::RLIMIT_AS).expect("the limits");
    setrlimit(Resource::RLIMIT_AS, hard, hard).expect("the highest limit");
}

/// Adds markers with distinct texts of this length, numbered from `from` on. Allocates nothing
/// after the first one.
fn add_markers(numbers: std::ops::Range<usize>, text_bytes: usize) {
    let mut text = String::with_capacity(text_bytes + 32);
    for number in numbers {
        text.clear();
        write!(text, "marker {number:9} {:text_bytes$}", "").expect("a text");
        gekkota::add_text_marker(
            "M",
            gecko_profiler_category!(Other),
            MarkerOptions::default(),
            &text,
        );
    }
}

fn buffer_info() -> gekkota::BufferInfo {
    gekkota::profiler_get_buffer_info().expect("active")
}

fn held_bytes() -> u64 {
    let info = buffer_info();
    info.range_end - info.range_start
}
