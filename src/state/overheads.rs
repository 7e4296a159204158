//! Statistics of the sampler's overhead, which `profiler_get_buffer_info` returns.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::types::ProfilerStats;

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
