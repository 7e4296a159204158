//! A tick that the sampler misses has no sample.

use std::time::Duration;

use crate::common::{Read, Sleeper, isolated, samples_of, wait_until};
use crate::session::within_loader_callback::{wait_for_blocked_sampler, within_loader_callback};
use gekkota::{ProfilerSession, StartParams, profiler_get_buffer_info};

/// How long the sampler is kept from its ticks.
const HOLD: Duration = Duration::from_millis(500);
/// Shortest time without samples, in ms: that hold, less what the times of idle samples may differ
/// from those of their ticks.
const SHORTEST_GAP_MS: f64 = 400.0;

/// Waits for `count` ticks. Unlike a profile, this does not make the sampler write idle samples.
fn wait_for_ticks(count: u64) {
    let ticks = || profiler_get_buffer_info().expect("active").overheads.count;
    let end = ticks() + count;
    wait_until("the sampler has ticked", || ticks() >= end);
}

#[test]
fn sleeping_thread_has_no_samples_on_missed_ticks() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let sleeper = Sleeper::start("sleeper");
        wait_until("the sleeper is idle", || {
            let read = Read::of_running();
            let mut threads = read.threads().iter();
            let sleeper = threads.find(|thread| thread["name"] == "sleeper");
            sleeper.is_some_and(|sleeper| samples_of(sleeper).len() >= 50)
        });
        // The samples before and after the hold could be one run.
        wait_for_ticks(200);
        within_loader_callback(|| {
            wait_for_blocked_sampler();
            std::thread::sleep(HOLD);
        });
        wait_for_ticks(20);
        let read = Read::from_profile(&session.finish().expect("profile"));
        drop(sleeper);
        let samples = read.samples("sleeper");
        let gaps = samples
            .windows(2)
            .map(|two| two[1].time_ms - two[0].time_ms);
        let longest_ms = gaps.fold(0.0, f64::max);
        let missed = read.count("missed_ticks");
        println!("{missed} ticks missed, and the longest gap is {longest_ms} ms");
        assert!(
            longest_ms >= SHORTEST_GAP_MS,
            "{missed} ticks missed, but no gap is longer than {longest_ms} ms"
        );
    });
}
