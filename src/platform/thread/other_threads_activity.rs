//! Detects whether other threads of this process have run, for all of them at once.
//!
//! On request, the kernel adds up the CPU time of the process thread by thread. While a CPU timer
//! of the process is armed, the kernel keeps a running sum instead. Since Linux 5.4 the clock of
//! the process reads that sum. It is exact to the nanosecond for each thread that has been switched
//! out or seen by a scheduler tick. [`ProcessCpuSum`] therefore arms a timer that never expires.
//!
//! **Contract of the calls** (cited below):
//! - *own memory*: the kernel reads and writes locals of this file's functions, of the types that
//!   it expects;
//! - *ours*: the timer is created here, and deleted once, on drop.

use crate::platform::clock::{process_cpu_ns, thread_cpu_ns};
use crate::platform::identity::current_thread_id;
use crate::platform::procfs::is_sandboxed;
use crate::platform::system_info::kernel_is_at_least;

/// Activity of all threads of this process except the calling one. The value changes when such a
/// thread goes to sleep or is preempted, and at the next scheduler tick for one that keeps running.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct OtherThreadsActivity {
    switches: u64,
    cpu_ns: u64,
    /// Largest difference in `cpu_ns` between two readings with no activity in between.
    slack_ns: u64,
}

impl OtherThreadsActivity {
    #[cfg(test)]
    pub(crate) fn for_test(switches: u64, cpu_us: u64) -> Self {
        Self {
            switches,
            cpu_ns: cpu_us * 1000,
            slack_ns: 10_000,
        }
    }

    /// Returns whether one of the threads has run since `before` was read.
    pub(crate) fn has_changed_since(self, before: Self) -> bool {
        self.switches != before.switches || self.cpu_ns.abs_diff(before.cpu_ns) > self.slack_ns
    }
}

/// A running sum of the process's CPU time, kept by the kernel.
///
/// Cost: each thread switch adds to a variable that the threads share. On processors that run
/// without scheduler ticks the timer would bring the ticks back, so no sum is kept there.
#[derive(Debug)]
pub(crate) struct ProcessCpuSum {
    timer: libc::c_int,
}

impl ProcessCpuSum {
    /// Starts the sum. Returns `None` in a sandbox, before Linux 5.4, on processors without ticks,
    /// and if no timer is available. Cost: some tens of µs.
    pub(crate) fn start() -> Option<Self> {
        /// Expiry of the timer, in seconds of CPU time: about the maximum that the kernel accepts.
        const NEVER: libc::time_t = 9_000_000_000;
        if is_sandboxed() || !kernel_is_at_least(5, 4) || has_tickless_processors() {
            return None;
        }
        let mut timer: libc::c_int = 0;
        // SAFETY: *own memory*; zeroed is a valid `sigevent`, and the kernel's timer id is a
        // `c_int`.
        unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_SIGNAL;
            // The default action of this signal is to ignore it, in case the timer expires after
            // all.
            event.sigev_signo = libc::SIGURG;
            let (call, clock) = (libc::SYS_timer_create, libc::CLOCK_PROCESS_CPUTIME_ID);
            if libc::syscall(call, clock, &raw mut event, &raw mut timer) != 0 {
                return None;
            }
        }
        let sum = Self { timer };
        let zero = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let end = libc::itimerspec {
            it_interval: zero,
            it_value: libc::timespec {
                tv_sec: NEVER,
                tv_nsec: 0,
            },
        };
        let no_flags = 0;
        let no_old_value = std::ptr::null_mut::<libc::itimerspec>();
        // SAFETY: *own memory*, and *ours*.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_timer_settime,
                timer,
                no_flags,
                &raw const end,
                no_old_value,
            )
        };
        (answer == 0).then_some(sum)
    }

    /// Reads the activity from the sum. Cost: three short system calls, for any number of threads.
    pub(crate) fn other_threads_activity(&self) -> OtherThreadsActivity {
        // Reading the calling thread's own clock brings its share of the sum up to date.
        let own_ns = thread_cpu_ns(current_thread_id()).unwrap_or(0);
        OtherThreadsActivity {
            switches: 0,
            cpu_ns: process_cpu_ns().wrapping_sub(own_ns),
            slack_ns: 0,
        }
    }
}

impl Drop for ProcessCpuSum {
    fn drop(&mut self) {
        // A sandbox that is active by now may kill the process for this call. The timer never
        // expires, so leaving it armed is harmless.
        if !is_sandboxed() {
            // SAFETY: *ours*.
            unsafe { libc::syscall(libc::SYS_timer_delete, self.timer) };
        }
    }
}

/// Returns whether the kernel runs some processors without scheduler ticks.
fn has_tickless_processors() -> bool {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/nohz_full").unwrap_or_default();
    list.trim_start()
        .starts_with(|first: char| first.is_ascii_digit())
}

/// Reads the activity by `getrusage`, without a running sum. Cost: two system calls, and 20 to 100
/// ns per thread.
pub(crate) fn other_threads_activity_by_rusage() -> OtherThreadsActivity {
    let read = |scope| {
        // SAFETY: zeroed is a valid `rusage`, and *own memory*.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(scope, &mut usage);
            usage
        };
        let ns =
            |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
        (
            usage.ru_nvcsw as u64 + usage.ru_nivcsw as u64,
            ns(usage.ru_utime) + ns(usage.ru_stime),
        )
    };
    let own = read(libc::RUSAGE_THREAD);
    let all = read(libc::RUSAGE_SELF);
    OtherThreadsActivity {
        switches: all.0.wrapping_sub(own.0),
        cpu_ns: all.1.wrapping_sub(own.1),
        slack_ns: 10_000,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Other tests run in this process at the same time, so only activity can be asserted, not its
    /// absence.
    #[test]
    fn both_readings_notice_a_thread_that_wakes_briefly() {
        let sum = ProcessCpuSum::start().expect("a timer");
        let (wake, woken) = mpsc::channel::<()>();
        let (answer, answered) = mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            for () in woken {
                answer.send(()).expect("the test waits for the answer");
            }
        });
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(1));
            let before = (
                sum.other_threads_activity(),
                other_threads_activity_by_rusage(),
            );
            wake.send(()).expect("the sleeper is waiting");
            answered.recv().expect("an answer");
            std::thread::sleep(Duration::from_millis(1));
            assert!(sum.other_threads_activity().has_changed_since(before.0));
            assert!(other_threads_activity_by_rusage().has_changed_since(before.1));
        }
        drop(wake);
        sleeper.join().expect("the sleeper");
    }

    const ROUNDS: i32 = 100;
    const ENOUGH: i32 = ROUNDS * 9 / 10;

    /// Returns in how many of [`ROUNDS`] rounds the activity stayed the same while the calling
    /// thread worked. When other processes compete for the processor, the kernel looks for another
    /// thread at the end of each system call, and so updates the sum between the two clock reads of
    /// one reading. This lasts for a while, so there are several attempts.
    fn unchanged_rounds() -> i32 {
        let Some(sum) = ProcessCpuSum::start() else {
            return -1;
        };
        let is_unchanged = |_: &i32| {
            let before = sum.other_threads_activity();
            std::hint::black_box(
                (0..50_000u64).fold(0, |sum, number| std::hint::black_box(sum ^ number)),
            );
            !sum.other_threads_activity().has_changed_since(before)
        };
        let mut most = 0;
        for _ in 0..100 {
            most = most.max((0..ROUNDS).filter(is_unchanged).count() as i32);
            if most >= ENOUGH {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        most
    }

    /// Runs in the child of a fork, which has no other threads.
    #[test]
    fn activity_ignores_the_calling_thread() {
        let mut status = 0;
        // SAFETY: the child may allocate, since glibc supports that after a fork, and it exits
        // without running destructors. The status is a local.
        unsafe {
            let child = libc::fork();
            assert!(child >= 0);
            if child == 0 {
                libc::_exit(unchanged_rounds());
            }
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
        }
        assert!(libc::WIFEXITED(status), "{status:#x}");
        // A scheduler tick can update the sum in any round, so some rounds may differ.
        let unchanged = libc::WEXITSTATUS(status);
        assert!(
            (ENOUGH..=ROUNDS).contains(&unchanged),
            "{unchanged} of {ROUNDS}"
        );
    }
}
