//! Whether this process's other threads have run, for all of them at once.
//!
//! The kernel adds their CPU time up when it is asked, thread by thread. While a CPU timer of the process is armed it keeps
//! the sum instead, and since Linux 5.4 tells it as the process's clock: exact to the nanosecond for every thread that has
//! been switched out or seen by a scheduler tick. So one is armed that never ends.
//!
//! **Contract of the calls** (cited below):
//! - *own memory*: the kernel reads and writes locals of this file's functions, of the types that it expects;
//! - *ours*: the timer was made here, and is deleted once, by the drop.

use crate::platform::clock::{process_cpu_ns, thread_cpu_ns};
use crate::platform::identity::current_thread_id;
use crate::platform::procfs::is_sandboxed;
use crate::platform::system_info::kernel_is_since;

/// How much the threads of this process but the calling one ran: the number changes with every one of them that has gone
/// to sleep or was preempted, and at the next tick of the scheduler with one that runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct OthersActivity {
    switches: u64,
    cpu_ns: u64,
    /// Two readings differ by so much although nobody has run.
    slack_ns: u64,
}

impl OthersActivity {
    #[cfg(test)]
    pub(crate) fn for_test(switches: u64, cpu_us: u64) -> Self {
        Self {
            switches,
            cpu_ns: cpu_us * 1000,
            slack_ns: 10_000,
        }
    }

    /// Whether any of them has run since.
    pub(crate) fn is_beyond(self, before: Self) -> bool {
        self.switches != before.switches || self.cpu_ns.abs_diff(before.cpu_ns) > self.slack_ns
    }
}

/// A running sum of the process's CPU time, kept by the kernel. It costs every switch between threads an addition to a
/// place that they share, and where processors run without ticks they have them again; there it is not kept.
#[derive(Debug)]
pub(crate) struct RunningSum {
    timer: libc::c_int,
}

impl RunningSum {
    /// Some tens of µs. `None` in a sandbox, on older systems, and where there is no timer left.
    pub(crate) fn start() -> Option<Self> {
        /// In seconds of CPU time: about the longest that the kernel takes.
        const NEVER: libc::time_t = 9_000_000_000;
        if is_sandboxed() || !kernel_is_since(5, 4) || has_tickless_processors() {
            return None;
        }
        let mut timer: libc::c_int = 0;
        // SAFETY: *own memory*; zeroed is a valid `sigevent`, and the kernel's id of a timer is a `c_int`.
        unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_SIGNAL;
            // By default it is ignored, should the end come after all.
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

    /// Three short system calls, for any number of threads.
    pub(crate) fn others_activity(&self) -> OthersActivity {
        // Asking for its own time brings the calling thread's share of the sum up to date.
        let own_ns = thread_cpu_ns(current_thread_id()).unwrap_or(0);
        OthersActivity {
            switches: 0,
            cpu_ns: process_cpu_ns().wrapping_sub(own_ns),
            slack_ns: 0,
        }
    }
}

impl Drop for RunningSum {
    fn drop(&mut self) {
        // A sandbox that came meanwhile may kill for it; the timer never ends.
        if !is_sandboxed() {
            // SAFETY: *ours*.
            unsafe { libc::syscall(libc::SYS_timer_delete, self.timer) };
        }
    }
}

fn has_tickless_processors() -> bool {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/nohz_full").unwrap_or_default();
    list.trim_start()
        .starts_with(|first: char| first.is_ascii_digit())
}

/// The same without a running sum: two system calls, and 20 to 100 ns for each thread.
pub(crate) fn others_activity_thread_by_thread() -> OthersActivity {
    let read = |who| {
        // SAFETY: zeroed is a valid `rusage`, and *own memory*.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(who, &mut usage);
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
    OthersActivity {
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

    /// Other tests of this process run meanwhile, so that only what must be seen can be asked for.
    #[test]
    fn a_thread_that_wakes_for_a_moment_is_noticed_both_ways() {
        let sum = RunningSum::start().expect("a timer");
        let (wake, woken) = mpsc::channel::<()>();
        let (answer, answered) = mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            for () in woken {
                answer.send(()).expect("it is waited for");
            }
        });
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(1));
            let before = (sum.others_activity(), others_activity_thread_by_thread());
            wake.send(()).expect("it waits");
            answered.recv().expect("an answer");
            std::thread::sleep(Duration::from_millis(1));
            assert!(sum.others_activity().is_beyond(before.0));
            assert!(others_activity_thread_by_thread().is_beyond(before.1));
        }
        drop(wake);
        sleeper.join().expect("the sleeper");
    }

    const ROUNDS: i32 = 100;
    const ENOUGH: i32 = ROUNDS * 9 / 10;

    /// How often it stood still while the calling thread worked, of so many rounds. Where others want the processor, the kernel
    /// looks for another thread at the end of each call and so brings the sum up to date between the two clocks of a
    /// reading, for a while; so there are several attempts.
    fn rounds_at_rest() -> i32 {
        let Some(sum) = RunningSum::start() else {
            return -1;
        };
        let stood_still = |_: &i32| {
            let before = sum.others_activity();
            std::hint::black_box(
                (0..50_000u64).fold(0, |sum, number| std::hint::black_box(sum ^ number)),
            );
            !sum.others_activity().is_beyond(before)
        };
        let mut most = 0;
        for _ in 0..100 {
            most = most.max((0..ROUNDS).filter(stood_still).count() as i32);
            if most >= ENOUGH {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        most
    }

    /// In the child of a fork, where there are no others.
    #[test]
    fn it_stands_still_while_others_rest_whatever_the_calling_thread_does() {
        let mut status = 0;
        // SAFETY: the child allocates, as it may with glibc, and ends without anybody's destructors; the status is a local.
        unsafe {
            let child = libc::fork();
            assert!(child >= 0);
            if child == 0 {
                libc::_exit(rounds_at_rest());
            }
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
        }
        assert!(libc::WIFEXITED(status), "{status:#x}");
        // At a tick it does so at any time.
        let at_rest = libc::WEXITSTATUS(status);
        assert!(
            (ENOUGH..=ROUNDS).contains(&at_rest),
            "{at_rest} of {ROUNDS}"
        );
    }
}
