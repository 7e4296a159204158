//! What a session counts, measures and notes of its own work.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::platform::monotonic_now;
use crate::types::{ProfilerStats, TimeStamp};
use crate::util::{LockRank, NamedMutex};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Counts of the sampler's work, failures and costs.
        #[derive(Debug, Default)]
        pub(crate) struct SessionCounts {
            $($(#[$doc])* pub(crate) $name: AtomicU64,)+
        }

        impl SessionCounts {
            /// Returns the name and the value of each count.
            pub(crate) fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Ordering::Relaxed)),)+]
            }
        }
    };
}

counts! {
    /// Most bytes of the capacity that the limits of memory have withheld since the start.
    withheld_capacity_bytes,
    /// Ticks for which the sampler woke.
    ticks,
    /// Ticks that began more than half an interval late.
    late_ticks,
    /// Ticks that came late because the sampler waited for a processor, however little.
    delayed_ticks,
    /// Ticks of the schedule that were dropped because the sampler could not run, or because it
    /// left the processor to the application after a long tick.
    missed_ticks,
    /// Ticks of the schedule that were left out because the sampler had used the CPU time that the
    /// session allows. The samples before them count for them, too.
    skipped_ticks,
    /// Ticks that took no samples, because the system had no memory to record them.
    ticks_without_memory,
    /// Samples captured by a signal handler.
    captured_samples,
    /// Samples of sleeping threads whose stacks the sampler read itself, without waking them.
    remote_samples,
    /// Samples of threads that had not run since the previous one.
    same_samples,
    /// Requests sent to sleeping threads, whose system calls they may have interrupted with
    /// `EINTR`.
    signals_to_sleepers,
    /// Threads whose sleep state the kernel hides. Each sleep of such a thread is interrupted by a
    /// signal.
    hidden_threads,
    /// Threads whose CPU clock the kernel refuses to read. They have no CPU times, and a signal
    /// interrupts them on every tick, even while they sleep.
    threads_without_clock,
    /// Threads whose context switches the kernel does not report. Counted with the feature
    /// `contextswitches` only.
    threads_without_switches,
    /// Threads whose waits for a processor the kernel does not report. Counted likewise.
    threads_without_waits,
    /// Samples of a stack other than the thread's own: a signal stack or the stack of a coroutine,
    /// for example.
    samples_on_other_stacks,
    /// Samples whose stack could not be unwound to its root.
    truncated_samples,
    /// Samples among `truncated_samples` whose thread used more stack than is copied: 1 MiB, or as
    /// much as there was memory for.
    too_deep_samples,
    /// Captures that did not fit into the thread's slot and were repeated in a larger one. Each
    /// counts in `unanswered_ticks`, too.
    repeated_captures,
    /// Ticks at which a running thread had a pending request.
    unanswered_ticks,
    /// Threads that had an event of their CPU clock, which interrupted them while they ran.
    threads_with_events,
    /// Threads whose event the kernel refused, so that signals interrupted them.
    refused_events,
    /// Number of times that a thread ran for long without being interrupted by its event.
    silent_events,
    /// Samples of running threads that could not be interrupted. They say why, and have no stack.
    samples_without_stack,
    /// Requests that the kernel refused to send.
    refused_signals,
    /// Number of times that the profiler's handler was found replaced.
    handler_replacements,
    /// Threads that exited without unregistering.
    threads_found_dead,
    /// Threads that were sampled although they had not registered.
    unregistered_threads,
    /// Threads that had not registered and ended before their first sample.
    unsampled_threads,
    /// Number of times that the system refused to list the process's threads.
    refused_thread_lists,
    /// Threads that found no free capture slot. They have markers and CPU times.
    threads_without_stacks,
    /// 1 if the sampler panicked. No samples are taken afterwards.
    sampler_panics,
    /// Stacks of sampled allocations that a snapshot of the heap lacks, because they exceed its
    /// space.
    unkept_allocation_stacks,
    /// Sampled allocations and frees of a session that does not profile the main thread, which they
    /// belong to.
    allocations_without_track,
    /// Samples that were dropped because the buffer had no space.
    dropped_samples,
    /// Waits of async tasks, or rows of such waits, that were not recorded for lack of space.
    lost_waits,
    /// Waits of async tasks that were long enough for an interval, but have none, because there
    /// were too many.
    left_out_wait_intervals,
    /// Ended threads whose entries were dropped with them, because the session kept too many.
    dropped_ended_threads,
    /// Ended threads without entries that were dropped because the session kept too many.
    dropped_empty_threads,
    /// Unregistered pages that were dropped because the session kept too many.
    dropped_ended_pages,
    /// Profiles of child processes that were dropped because the session kept too many.
    dropped_exit_profiles,
    /// Bytes of `/tmp/perf-PID.map` that were not read, because the code that it lists exceeds its
    /// share of the memory.
    unread_perf_map_bytes,
    /// CPU time of the sampler thread, in ns.
    sampler_cpu_ns,
    /// Time that the handler took for samples, in ns. It is left out of the threads' CPU times.
    stopped_ns,
    /// Unwound stacks, their native frames, and the time for unwinding them, in ns.
    unwound_stacks,
    unwound_frames,
    unwind_ns,
    /// Stacks of markers: those that `unwound_stacks` counts, too, and those with labels only.
    marker_stacks,
    /// Frames and time, in ns, of the stacks that were immediately unwound a second time, to
    /// measure cached rules. 0 without the feature `unwind_benchmark`.
    repeated_frames,
    repeated_unwind_ns,
}

impl SessionCounts {
    pub(crate) fn add(count: &AtomicU64, number: u64) {
        count.fetch_add(number, Ordering::Relaxed);
    }
}

/// Maximum number of events. Beyond it, the oldest event is dropped, and `dropped` counts it.
const MAX_EVENTS: usize = 256;

/// The newest events of a session.
#[doc(alias = "ProfilingLog")]
#[derive(Debug)]
pub(crate) struct SessionLog(NamedMutex<LoggedEvents>);

/// Events with their times, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoggedEvents {
    pub(crate) events: VecDeque<(TimeStamp, Cow<'static, str>)>,
    /// Number of older events that were dropped.
    pub(crate) dropped: u64,
}

impl SessionLog {
    pub(crate) fn new() -> Self {
        let events = LoggedEvents::default();
        Self(NamedMutex::new(
            "session log",
            LockRank::SessionData,
            events,
        ))
    }

    /// Adds an event at the current time.
    #[doc(alias = "Access")]
    pub(crate) fn add(&self, event: impl Into<Cow<'static, str>>) {
        let event = event.into();
        let mut log = self.0.lock();
        if log.events.len() == MAX_EVENTS {
            log.events.pop_front();
            log.dropped += 1;
        }
        log.events.push_back((monotonic_now(), event));
    }

    /// Returns a copy of the events.
    pub(crate) fn all(&self) -> LoggedEvents {
        self.0.lock().clone()
    }
}

/// Statistics of one duration. Only the sampler adds to it; any thread may read it.
#[derive(Debug)]
pub(crate) struct DurationStats {
    count: AtomicU64,
    sum_ns: AtomicU64,
    min_ns: AtomicU64,
    max_ns: AtomicU64,
}

impl Default for DurationStats {
    fn default() -> Self {
        Self {
            count: AtomicU64::new(0),
            sum_ns: AtomicU64::new(0),
            min_ns: AtomicU64::new(u64::MAX),
            max_ns: AtomicU64::new(0),
        }
    }
}

impl DurationStats {
    pub(crate) fn add(&self, ns: u64) {
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
        self.min_ns.fetch_min(ns, Ordering::Relaxed);
        self.max_ns.fetch_max(ns, Ordering::Relaxed);
        // Published last, so that a reader that sees the count sees a minimum and a maximum.
        self.count.fetch_add(1, Ordering::Release);
    }

    /// Returns the statistics. A duration that another thread is adding at this moment may be in
    /// some fields only.
    pub(crate) fn read(&self) -> ProfilerStats {
        match self.count.load(Ordering::Acquire) {
            0 => ProfilerStats::default(),
            count => ProfilerStats {
                count,
                sum_ns: self.sum_ns.load(Ordering::Relaxed),
                min_ns: self.min_ns.load(Ordering::Relaxed),
                max_ns: self.max_ns.load(Ordering::Relaxed),
            },
        }
    }
}

/// Durations of the sampler's loops and of their parts. `BufferInfo` documents each.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Overheads<T> {
    pub(crate) intervals: T,
    pub(crate) overheads: T,
    pub(crate) lockings: T,
    pub(crate) cleanings: T,
    pub(crate) counters: T,
    pub(crate) threads: T,
}

/// The durations while the session runs.
pub(crate) type SamplerOverheads = Overheads<DurationStats>;

/// The statistics of [`SamplerOverheads`] at one moment.
pub(crate) type OverheadStats = Overheads<ProfilerStats>;

impl SamplerOverheads {
    pub(crate) fn read(&self) -> OverheadStats {
        OverheadStats {
            intervals: self.intervals.read(),
            overheads: self.overheads.read(),
            lockings: self.lockings.read(),
            cleanings: self.cleanings.read(),
            counters: self.counters.read(),
            threads: self.threads.read(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_keeps_the_newest_events_in_order() {
        let log = SessionLog::new();
        log.add("first");
        for _ in 0..MAX_EVENTS {
            log.add("later");
        }
        let LoggedEvents { events, dropped } = log.all();
        assert_eq!((events.len(), dropped), (MAX_EVENTS, 1));
        assert!(events.iter().all(|(_, event)| event == "later"));
        assert!(events.iter().is_sorted_by_key(|(time, _)| *time));
    }

    #[test]
    fn read_returns_count_sum_and_bounds() {
        let stats = DurationStats::default();
        assert_eq!(stats.read(), ProfilerStats::default());
        [30, 10, 20].into_iter().for_each(|ns| stats.add(ns));
        let expected = ProfilerStats {
            count: 3,
            sum_ns: 60,
            min_ns: 10,
            max_ns: 30,
        };
        assert_eq!(stats.read(), expected);
    }
}
