//! Clocks: monotonic time, CPU time of threads and of the process, and sleeping until a deadline.
//!
//! Runs in the signal handler: [`monotonic_now`], [`thread_cpu_ns`] and the functions named
//! `…_in_handler`.
//! `clock_gettime` is async-signal-safe.
//!
//! **Contract of the calls** (cited below):
//! - *own memory*: the kernel writes to a `timespec` on the stack of the function.

use std::time::Duration;

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
use nix::unistd::{SysconfVar, sysconf};

#[cfg(target_arch = "x86_64")]
use crate::platform::clock::fast_clock::{calibrate, fast_now, reset_calibration_in_child};
use crate::platform::procfs;
use crate::types::{ThreadId, TimeStamp};

/// Reads a kernel clock, in ns. Returns `None` if the clock does not exist, such as that of an
/// exited thread. It also runs in the signal handler, so it does not use `nix`.
fn read_clock_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: *own memory*.
    let answer = unsafe { libc::clock_gettime(clock, &mut time) };
    (answer == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Returns the current monotonic time. Callable on any thread and in the signal handler. Cost: 10
/// to 20 ns; a system call if the vDSO does not support the system's clock source.
#[inline]
pub(crate) fn monotonic_now() -> TimeStamp {
    #[cfg(target_arch = "x86_64")]
    let now_ns = fast_now(system_now_ns);
    #[cfg(not(target_arch = "x86_64"))]
    let now_ns = system_now_ns();
    TimeStamp(now_ns)
}

/// Returns the current monotonic time of the system clock, in ns.
fn system_now_ns() -> u64 {
    read_clock_ns(libc::CLOCK_MONOTONIC).unwrap_or(0)
}

/// Calibrates the processor's counter against the system clock. While the two agree,
/// [`monotonic_now`] reads the counter. Called by the sampler several times a second.
pub(crate) fn calibrate_clock() {
    #[cfg(target_arch = "x86_64")]
    calibrate(system_now_ns);
}

/// Resets the calibration state in the child of a fork.
pub(crate) fn reset_clock_calibration_in_child() {
    #[cfg(target_arch = "x86_64")]
    reset_calibration_in_child();
}

/// Returns the CPU time of the calling thread, in ns. Cost: one system call.
pub(crate) fn current_thread_cpu_ns_in_handler() -> u64 {
    read_clock_ns(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}

/// Returns the CPU time of a thread of this process, in ns, or `None` if the kernel has no clock
/// for the thread. Cost: one system call.
pub(crate) fn thread_cpu_ns(thread: ThreadId) -> Option<u64> {
    // The kernel's encoding of a thread's CPU clock: the complement of the id above three flag
    // bits. The flag 4 selects a thread rather than a process, and 2 selects the scheduler's clock
    // (`CPUCLOCK_SCHED`).
    read_clock_ns((!thread.to_number() << 3) | 6)
}

/// Returns the CPU time of the process, in ns. Cost: one system call.
pub(crate) fn process_cpu_ns() -> u64 {
    read_clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0)
}

/// Sleeps until the monotonic clock reaches `deadline`. Returns at once if the deadline has passed.
pub(crate) fn sleep_until(deadline: TimeStamp) {
    let time = TimeSpec::from(Duration::from_nanos(deadline.0));
    let (clock, flags) = (ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME);
    while clock_nanosleep(clock, flags, &time) == Err(Errno::EINTR) {}
}

/// Returns the time by the wall clock in UTC: year, month and day, counted from 1, hour, minute,
/// second.
pub(crate) fn utc_now() -> [i32; 6] {
    let seconds = read_clock_ns(libc::CLOCK_REALTIME).unwrap_or(0) / 1_000_000_000;
    let mut parts = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: zeroed is valid for the structure; the C library reads one local and writes the
    // other.
    let parts = unsafe {
        libc::gmtime_r(&(seconds as _), parts.as_mut_ptr());
        parts.assume_init()
    };
    [
        parts.tm_year + 1900,
        parts.tm_mon + 1,
        parts.tm_mday,
        parts.tm_hour,
        parts.tm_min,
        parts.tm_sec,
    ]
}

/// Start of this process, to 10 ms: the resolution of the kernel's record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessStart {
    pub(crate) monotonic: TimeStamp,
    /// Milliseconds since 1970.
    pub(crate) epoch_ms: f64,
    /// Whether the kernel has said when the process started. Otherwise both are the time of the
    /// first question.
    pub(crate) is_known: bool,
}

/// Returns how long ago a process or thread started, in ns, from the kernel's record of its start.
/// `None` if the kernel does not say. The time includes that in which the system was suspended.
pub(crate) fn age_of_start_ns(start_ticks: u64) -> Option<u64> {
    let boot_ns = read_clock_ns(libc::CLOCK_BOOTTIME)?;
    let ticks_per_second = u64::try_from(sysconf(SysconfVar::CLK_TCK).ok()??).ok()?;
    let start_ns = start_ticks
        .checked_mul(1_000_000_000)?
        .checked_div(ticks_per_second)?;
    boot_ns.checked_sub(start_ns)
}

/// Reads the start of this process from the kernel. The result does not depend on when the profiler
/// is initialized.
pub(crate) fn process_start() -> ProcessStart {
    let now = monotonic_now();
    let epoch_ns = read_clock_ns(libc::CLOCK_REALTIME).unwrap_or(0);
    let age_ns = procfs::own_stat().and_then(|stat| age_of_start_ns(stat.start_ticks));
    let is_known = age_ns.is_some();
    let age_ns = age_ns.unwrap_or(0);
    ProcessStart {
        is_known,
        monotonic: TimeStamp(now.0.saturating_sub(age_ns)),
        epoch_ms: epoch_ns.saturating_sub(age_ns) as f64 / 1e6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::identity::current_thread_id;

    #[test]
    fn thread_cpu_ns_of_a_running_thread_advances() {
        let own = current_thread_id();
        let before = thread_cpu_ns(own).expect("own clock");
        let mut sum = 0u64;
        while thread_cpu_ns(own).expect("own clock") < before + 2_000_000 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(process_cpu_ns() >= before);
    }

    #[test]
    fn thread_cpu_ns_of_an_exited_thread_is_none() {
        let id = std::thread::spawn(current_thread_id)
            .join()
            .expect("thread");
        // The kernel may remove the clock some time after the join, so the test waits for it.
        while thread_cpu_ns(id).is_some() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[test]
    fn process_start_is_recent() {
        let start = process_start();
        assert!(monotonic_now().since_ns(start.monotonic) < 3_600_000_000_000);
        assert!(start.epoch_ms > 1.6e12);
    }

    #[test]
    fn sleep_until_does_not_return_early() {
        let deadline = monotonic_now().plus_ns(2_000_000);
        sleep_until(deadline);
        assert!(monotonic_now() >= deadline);
        sleep_until(TimeStamp(0));
    }
}
