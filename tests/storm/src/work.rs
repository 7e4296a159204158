//! Work with a known result.

#[path = "../library/work.rs"]
mod shared;

use std::hint::black_box;
use std::time::Duration;

pub use shared::{mix, mix_and_unwind, mix_deep};

/// Returns the CPU time that the calling thread has used.
pub fn thread_cpu() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes to a local.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Works until the calling thread has used `time` of CPU time.
pub fn spend_cpu(time: Duration) {
    let end = thread_cpu() + time;
    while thread_cpu() < end {
        black_box(mix(7, 10_000));
    }
}
