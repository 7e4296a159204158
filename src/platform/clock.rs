//! Clocks: monotonic time, CPU time of threads and of the process, and sleeping to a point in time.
//!
//! `clock_gettime` is async-signal-safe; the functions named `…_in_handler`, and [`monotonic_now`], are called in the
//! signal handler.
//!
//! **Contract of the calls** (cited below):
//! - *own memory*: the kernel writes to a `timespec` on this stack, and reads one from it.

use crate::base::{ThreadId, TimeStamp};
#[cfg(target_arch = "x86_64")]
use crate::platform::fast_clock::{fast_now, follow, forget_follower_in_child};
use crate::platform::procfs;

/// Nanoseconds of a clock of the kernel; `None` when it does not exist, as a dead thread's.
fn read_clock_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: *own memory*.
    let answer = unsafe { libc::clock_gettime(clock, &mut time) };
    (answer == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Now. 10 to 20 ns, without a system call; any thread, the signal handler included.
#[inline]
pub(crate) fn monotonic_now() -> TimeStamp {
    #[cfg(target_arch = "x86_64")]
    if let Some(now) = fast_now() {
        return now;
    }
    system_now()
}

fn system_now() -> TimeStamp {
    TimeStamp(read_clock_ns(libc::CLOCK_MONOTONIC).unwrap_or(0))
}

/// Has the time told by the fastest clock there is, where that agrees with the system's. By the sampler, several times a second.
pub(crate) fn follow_clock() {
    #[cfg(target_arch = "x86_64")]
    follow(|| system_now().0);
}

/// In the child of a fork.
pub(crate) fn forget_clock_follower_in_child() {
    #[cfg(target_arch = "x86_64")]
    forget_follower_in_child();
}

/// CPU time of the calling thread. One system call.
pub(crate) fn current_thread_cpu_ns_in_handler() -> u64 {
    read_clock_ns(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}

/// CPU time of a thread of this process, built from its id alone; `None` once it is dead. One system call.
pub(crate) fn thread_cpu_ns(thread: ThreadId) -> Option<u64> {
    // The kernel's encoding of "scheduler clock of one thread": the id's complement above three bits, which are 4
    // for "a thread" and 2 for "as the scheduler counts".
    read_clock_ns((!thread.to_number() << 3) | 6)
}

/// CPU time of the whole process. One system call.
pub(crate) fn process_cpu_ns() -> u64 {
    read_clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0)
}

/// Sleeps until the monotonic clock shows `deadline`; a deadline that is past returns at once.
pub(crate) fn sleep_until(deadline: TimeStamp) {
    let time = libc::timespec {
        tv_sec: (deadline.0 / 1_000_000_000) as libc::time_t,
        tv_nsec: (deadline.0 % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: *own memory*; no remaining time is asked for, since the deadline is absolute.
    while unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &time,
            std::ptr::null_mut(),
        )
    } == libc::EINTR
    {}
}

/// When this process began: by the monotonic clock, and in milliseconds since 1970. To 10 ms, the kernel's own grain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessStart {
    pub(crate) monotonic: TimeStamp,
    pub(crate) epoch_ms: f64,
}

/// Reads it from the kernel, so that it is right however late the profiler is initialised.
pub(crate) fn process_start() -> ProcessStart {
    let now = monotonic_now();
    let epoch_ns = read_clock_ns(libc::CLOCK_REALTIME).unwrap_or(0);
    let age_ns = procfs::own_stat()
        .and_then(|stat| {
            let boot_ns = read_clock_ns(libc::CLOCK_BOOTTIME)?;
            // SAFETY: `sysconf` reads no memory of ours.
            let ticks_per_second =
                u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok()?;
            let start_ns = stat
                .start_ticks
                .checked_mul(1_000_000_000)?
                .checked_div(ticks_per_second)?;
            boot_ns.checked_sub(start_ns)
        })
        .unwrap_or(0);
    ProcessStart {
        monotonic: TimeStamp(now.0.saturating_sub(age_ns)),
        epoch_ms: epoch_ns.saturating_sub(age_ns) as f64 / 1e6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::current_thread_id;

    #[test]
    fn a_threads_clock_is_found_by_its_id_and_goes_on() {
        let own = current_thread_id();
        let before = thread_cpu_ns(own).expect("own clock");
        let mut sum = 0u64;
        while thread_cpu_ns(own).expect("own clock") < before + 2_000_000 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(process_cpu_ns() >= before);
    }

    #[test]
    fn a_dead_thread_has_no_clock() {
        let id = std::thread::spawn(current_thread_id)
            .join()
            .expect("thread");
        // The kernel may take a moment to reap it.
        let gone = (0..100).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            thread_cpu_ns(id).is_none()
        });
        assert!(gone);
    }

    #[test]
    fn the_process_began_before_now_and_not_long_ago() {
        let start = process_start();
        assert!(monotonic_now().since_ns(start.monotonic) < 3_600_000_000_000);
        assert!(start.epoch_ms > 1.6e12);
    }

    #[test]
    fn sleeping_ends_no_earlier_than_asked() {
        let deadline = monotonic_now().plus_ns(2_000_000);
        sleep_until(deadline);
        assert!(monotonic_now() >= deadline);
        sleep_until(TimeStamp(0));
    }
}
