//! `profiler_get_buffer_info` returns statistics of the sampler's loops.

use crate::common::{isolated, one_loop};
use gekkota::profile::ProfilerStats;
use gekkota::{ProfilerSession, StartParams, profiler_get_buffer_info};

#[test]
fn buffer_info_counts_each_sampling_loop() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        for _ in 0..5 {
            one_loop();
        }
        gekkota::profiler_pause_sampling();
        // After these loops the sampler has seen the pause, and loops in a pause do not count.
        one_loop();
        one_loop();
        let info = profiler_get_buffer_info().expect("active");
        one_loop();
        assert_eq!(
            profiler_get_buffer_info().expect("active").overheads,
            info.overheads
        );
        let parts = [info.lockings, info.counters, info.threads, info.cleanings];
        let is_ordered = |stats: ProfilerStats| {
            stats.min_ns <= stats.max_ns
                && stats.sum_ns >= stats.max_ns
                && stats.sum_ns <= stats.count * stats.max_ns
        };
        assert!(info.overheads.count >= 5, "{info:?}");
        for stats in parts {
            assert!(is_ordered(stats), "{stats:?}");
            assert_eq!(stats.count, info.overheads.count);
        }
        let sum: u64 = parts.iter().map(|stats| stats.sum_ns).sum();
        assert_eq!(info.overheads.sum_ns, sum);
        // No interval ends with the first loop.
        assert_eq!(info.intervals.count, info.overheads.count - 1);
        assert!(is_ordered(info.intervals));
        drop(session);
    });
}
