//! Detects whether other threads of this process have run, for all of them at once.
//!
//! On request, the kernel adds up the CPU time of the process thread by thread. While a CPU timer
//! of the process is armed, the kernel keeps a running sum instead. Since Linux 5.4 the clock of
//! the process reads that sum. It is exact to the nanosecond for each thread that has been switched
//! out or seen by a scheduler tick. [`ProcessCpuSum`] therefore arms a timer that never expires.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{SigEvent, SigevNotify, Signal};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;

use crate::platform::clock::system_clock::{current_thread_cpu_ns_in_handler, process_cpu_ns};
use crate::platform::procfs::kernel_is_at_least;
use crate::platform::sandbox::may_make_uncommon_call;
use crate::platform::shared_file::read_text;

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

    /// Returns an activity as [`ProcessCpuSum`] reads it.
    #[cfg(test)]
    pub(crate) fn of_sum(cpu_ns: u64) -> Self {
        Self {
            cpu_ns,
            ..Self::default()
        }
    }

    /// Returns the CPU time of all these threads, in ns.
    pub(crate) fn cpu_ns(self) -> u64 {
        self.cpu_ns
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
    /// `None` only while the value is dropped.
    timer: Option<Timer>,
}

impl ProcessCpuSum {
    /// Starts the sum. Returns `None` in a sandbox, before Linux 5.4, on processors without ticks,
    /// and if no timer is available. Cost: some tens of µs.
    pub(crate) fn start() -> Option<Self> {
        /// Expiry of the timer, in CPU time: about the maximum that the kernel accepts.
        const NEVER: Duration = Duration::from_secs(9_000_000_000);
        if !kernel_is_at_least(5, 4) || has_tickless_processors() || !may_make_uncommon_call() {
            return None;
        }
        // The default action of this signal is to ignore it, in case the timer expires after all.
        let notify = SigevNotify::SigevSignal {
            signal: Signal::SIGURG,
            si_value: 0,
        };
        let clock = ClockId::CLOCK_PROCESS_CPUTIME_ID;
        let mut timer = Timer::new(clock, SigEvent::new(notify)).ok()?;
        let expiration = Expiration::OneShot(NEVER.into());
        timer.set(expiration, TimerSetTimeFlags::empty()).ok()?;
        Some(Self { timer: Some(timer) })
    }

    /// Reads the activity from the sum. Cost: two short system calls, for any number of threads.
    pub(crate) fn other_threads_activity(&self) -> OtherThreadsActivity {
        // Reading the calling thread's own clock brings its share of the sum up to date.
        let own_ns = current_thread_cpu_ns_in_handler();
        OtherThreadsActivity {
            switches: 0,
            cpu_ns: process_cpu_ns().wrapping_sub(own_ns),
            slack_ns: 0,
        }
    }
}

impl Drop for ProcessCpuSum {
    fn drop(&mut self) {
        // A sandbox that is active by now may kill the process for deleting the timer. The timer
        // never expires, so leaving it armed is harmless.
        if !may_make_uncommon_call() {
            std::mem::forget(self.timer.take());
        }
    }
}

/// Returns whether the kernel runs some processors without scheduler ticks.
fn has_tickless_processors() -> bool {
    let list = read_text("/sys/devices/system/cpu/nohz_full");
    list.trim_start()
        .starts_with(|first: char| first.is_ascii_digit())
}

/// Reads the activity by `getrusage`, without a running sum. Cost: two system calls, and 20 to 100
/// ns per thread.
pub(crate) fn other_threads_activity_by_rusage() -> OtherThreadsActivity {
    let read = |scope| {
        let ns = |time: TimeVal| time.num_microseconds() as u64 * 1000;
        getrusage(scope).map_or((0, 0), |usage| {
            (
                usage.voluntary_context_switches() as u64
                    + usage.involuntary_context_switches() as u64,
                ns(usage.user_time()) + ns(usage.system_time()),
            )
        })
    };
    let own = read(UsageWho::RUSAGE_THREAD);
    let all = read(UsageWho::RUSAGE_SELF);
    OtherThreadsActivity {
        switches: all.0.wrapping_sub(own.0),
        cpu_ns: all.1.wrapping_sub(own.1),
        slack_ns: 10_000,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};

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

    const UNCHANGED: i32 = 0;
    const ALWAYS_CHANGED: i32 = 1;
    const NO_TIMER: i32 = 2;

    /// Returns whether the activity ever stayed the same while the calling thread worked. If the
    /// activity included the calling thread, it would change in every round.
    ///
    /// A tick of the scheduler may update the sum between the two clock reads of one reading, so
    /// some rounds differ, and most do while other processes compete for the processor.
    fn activity_while_working() -> i32 {
        let Some(sum) = ProcessCpuSum::start() else {
            return NO_TIMER;
        };
        let is_unchanged = |_: u32| {
            let before = sum.other_threads_activity();
            std::hint::black_box(
                (0..50_000u64).fold(0, |sum, number| std::hint::black_box(sum ^ number)),
            );
            !sum.other_threads_activity().has_changed_since(before)
        };
        if (0..100_000).any(is_unchanged) {
            UNCHANGED
        } else {
            ALWAYS_CHANGED
        }
    }

    /// Runs in the child of a fork, which has no other threads.
    #[test]
    fn activity_ignores_the_calling_thread() {
        // SAFETY: the child may allocate, since glibc supports that after a fork, and it exits
        // without running destructors.
        let child = match unsafe { fork() }.expect("a child") {
            ForkResult::Parent { child } => child,
            // SAFETY: ends the process.
            ForkResult::Child => unsafe { libc::_exit(activity_while_working()) },
        };
        let status = waitpid(child, None).expect("the child's status");
        assert!(
            matches!(status, WaitStatus::Exited(_, UNCHANGED)),
            "{status:?}"
        );
    }
}
