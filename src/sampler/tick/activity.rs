//! Detects whether any thread of the process has run, for processes with many idle threads.
//!
//! Reading one CPU clock for each of a thousand threads costs most of a millisecond. Reading the
//! CPU time of all threads together takes about 1 µs where the kernel keeps the sum for us. The
//! kernel adds a thread's time to the sum when the thread goes to sleep or is preempted, and on
//! each scheduler tick. So if the sum has not changed since every idle thread was checked, none of
//! them has run, except perhaps one that still runs and has not seen a scheduler tick yet.
//!
//! Where the kernel does not keep the sum, it adds up the times of all threads on each read, at up
//! to 100 ns per thread. So the sampler skips eight or seven ticks between two reads there: while
//! threads keep running, and once no thread has run for a while.
//!
//! When a thread runs after such a quiet period, all idle threads are checked at once. While
//! threads keep running, the idle ones are checked in turn, each at least on every tenth tick. So a
//! thread that wakes after a long idle period may be noticed some milliseconds late if more than 32
//! other threads are idle. Its CPU time is charged to the sample that notices it.

use crate::platform::{OtherThreadsActivity, ProcessCpuSum, other_threads_activity_by_rusage};

/// Number of long-idle threads to check on each tick, unless [`MAX_TICKS_BETWEEN_CHECKS`] requires
/// more. If no more than this many are idle, all are checked.
const CHECKS_PER_TICK: u64 = 32;
/// Minimum sampling interval for the hint, in ns. The kernel updates the CPU time of a running
/// thread only on its own ticks, 1 to 10 ms apart. With shorter intervals the hint would be many
/// ticks late.
const MIN_INTERVAL_NS: u64 = 1_000_000;
/// Maximum number of ticks between two checks of a long-idle thread while other threads run.
const MAX_TICKS_BETWEEN_CHECKS: u64 = 10;
/// Ticks between two reads of the sum where the kernel adds it up on each read. Used while other
/// threads keep running, and (less 1) in a quiet period.
const TICKS_BETWEEN_READS: u64 = 8;

/// Long-idle threads to check on this tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IdleChecks {
    /// No check is needed, because no thread has run.
    None,
    /// Check one in this many idle threads on each tick, in turn.
    OneIn(u64),
}

/// Number of ticks without a running thread after which a quiet period begins.
const QUIET_TICKS: u64 = 32;

/// Source of the other threads' CPU time.
#[derive(Debug, Default)]
enum ActivitySource {
    /// No hint was needed so far.
    #[default]
    NotStarted,
    /// The kernel keeps the sum.
    Kept(ProcessCpuSum),
    /// The kernel adds up the times of all threads on each read.
    ThreadByThread,
}

/// Decides which long-idle threads to check, by the CPU time of all other threads.
#[derive(Debug, Default)]
pub(crate) struct ActivityHint {
    source: ActivitySource,
    /// The activity when it last changed.
    since: OtherThreadsActivity,
    /// Ticks until every idle thread has been checked since that change.
    checks_left: u64,
    /// Ticks until the activity is read again.
    ticks_until_hint: u64,
    /// Number of consecutive reads without activity since every idle thread has been checked.
    quiet: u64,
}

impl ActivityHint {
    /// Returns which of the `idle_threads` long-idle threads to check on this tick.
    pub(crate) fn checks(&mut self, idle_threads: u64, interval_ns: u64) -> IdleChecks {
        let one_in = idle_threads
            .div_ceil(CHECKS_PER_TICK)
            .clamp(1, MAX_TICKS_BETWEEN_CHECKS);
        if idle_threads <= CHECKS_PER_TICK || interval_ns < MIN_INTERVAL_NS {
            // Keep the kernel's sum for now, because the number of idle threads may go up and down
            // around the limit.
            let source = if idle_threads > CHECKS_PER_TICK / 2 {
                std::mem::take(&mut self.source)
            } else {
                ActivitySource::NotStarted
            };
            *self = Self {
                source,
                ..Self::default()
            };
            return IdleChecks::OneIn(one_in);
        }
        if self.ticks_until_hint > 0 {
            self.ticks_until_hint -= 1;
            return if self.quiet > 0 {
                IdleChecks::None
            } else {
                IdleChecks::OneIn(one_in)
            };
        }
        if matches!(self.source, ActivitySource::NotStarted) {
            self.source =
                ProcessCpuSum::start().map_or(ActivitySource::ThreadByThread, ActivitySource::Kept);
        }
        let activity = match &self.source {
            ActivitySource::Kept(sum) => sum.other_threads_activity(),
            ActivitySource::NotStarted | ActivitySource::ThreadByThread => {
                other_threads_activity_by_rusage()
            }
        };
        let checks = self.after(activity, one_in);
        if matches!(self.source, ActivitySource::Kept(_)) {
            self.ticks_until_hint = 0;
        }
        checks
    }

    fn after(&mut self, activity: OtherThreadsActivity, one_in: u64) -> IdleChecks {
        if activity.has_changed_since(self.since) {
            self.since = activity;
            if std::mem::take(&mut self.quiet) >= QUIET_TICKS {
                self.checks_left = 0;
                return IdleChecks::OneIn(1);
            }
            // A thread that ran twice in a row is likely to run on.
            self.ticks_until_hint = if self.checks_left > 0 {
                TICKS_BETWEEN_READS
            } else {
                0
            };
            self.checks_left = one_in;
            return IdleChecks::OneIn(one_in);
        }
        if self.checks_left > 0 {
            self.checks_left -= 1;
            return IdleChecks::OneIn(one_in);
        }
        self.quiet += 1;
        self.ticks_until_hint = if self.quiet >= QUIET_TICKS {
            TICKS_BETWEEN_READS - 1
        } else {
            0
        };
        IdleChecks::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_threads_are_not_checked_while_activity_is_unchanged() {
        let mut hint = ActivityHint::default();
        let activity = OtherThreadsActivity::for_test;
        assert_eq!(hint.after(activity(5, 100), 3), IdleChecks::OneIn(3));
        for _ in 0..3 {
            assert_eq!(
                hint.after(activity(5, 101), 3),
                IdleChecks::OneIn(3),
                "all of them, in turn"
            );
        }
        assert_eq!(hint.after(activity(5, 105), 3), IdleChecks::None);
        assert_eq!(
            hint.after(activity(6, 105), 3),
            IdleChecks::OneIn(3),
            "a thread went to sleep"
        );
        assert_eq!(hint.ticks_until_hint, 0);
        assert_eq!(
            hint.after(activity(6, 300), 3),
            IdleChecks::OneIn(3),
            "a thread is running"
        );
        assert_eq!(hint.ticks_until_hint, TICKS_BETWEEN_READS);
        assert_eq!(
            ActivityHint::default().checks(32, 1_000_000),
            IdleChecks::OneIn(1)
        );
    }

    #[test]
    fn all_idle_threads_are_checked_after_a_quiet_period() {
        let mut hint = ActivityHint::default();
        let activity = OtherThreadsActivity::for_test;
        assert_eq!(hint.after(activity(5, 100), 10), IdleChecks::OneIn(10));
        while hint.quiet < QUIET_TICKS {
            assert_eq!(hint.ticks_until_hint, 0);
            hint.after(activity(5, 100), 10);
        }
        assert_eq!(hint.ticks_until_hint, TICKS_BETWEEN_READS - 1);
        assert_eq!(
            hint.checks(1000, 1_000_000),
            IdleChecks::None,
            "without reading the sum"
        );
        assert_eq!(hint.after(activity(6, 100), 10), IdleChecks::OneIn(1));
        assert_eq!(hint.after(activity(6, 100), 10), IdleChecks::None);
    }
}
