//! Stopping a session: it returns at once, and leaves nothing behind.

use std::time::Duration;

use super::{LONGEST_INTERVAL, before_second_tick};
use crate::common::left_behind::{Holdings, threads};
use crate::common::{self, isolated, wait_until};
use gekkota::{StartParams, profiler_get_buffer_info, profiler_start, profiler_stop};

const RESIDENT_SLACK_KIB: usize = 4 * 1024;
/// The C library keeps up to 40 MiB of stacks of threads that have exited.
const MAPPED_SLACK_KIB: usize = 64 * 1024;

#[test]
fn thousand_sessions_leak_no_threads_memory_or_descriptors() {
    isolated(|| {
        Holdings::prepare();
        let worker = std::thread::spawn(|| {
            gekkota::register_thread("busy");
            common::work_for(Duration::from_millis(100));
            std::thread::park();
            gekkota::unregister_thread();
        });
        let own_threads = threads();
        let cycle = || {
            profiler_start(StartParams::default()).expect("start");
            gekkota::add_text_marker(
                "m",
                gekkota::gecko_profiler_category!(Other),
                Default::default(),
                "text",
            );
            profiler_stop();
        };
        // A joined thread may stay in the list for a moment.
        let wait_for_profiler_threads = || {
            wait_until("the threads of the profiler have exited", || {
                threads() <= own_threads
            });
        };
        (0..50).for_each(|_| cycle());
        wait_for_profiler_threads();
        let before = Holdings::now();
        (0..1000).for_each(|_| cycle());
        wait_for_profiler_threads();
        let after = Holdings::now();
        after.assert_as_before(&before, RESIDENT_SLACK_KIB, MAPPED_SLACK_KIB);
        assert!(
            after.mappings < before.mappings + 20,
            "mappings: {before:?}, then {after:?}"
        );
        profiler_stop();
        profiler_stop();
        worker.thread().unpark();
        worker.join().expect("thread");
    });
}

#[test]
fn stop_does_not_wait_for_the_next_tick() {
    isolated(|| {
        before_second_tick(|| {
            profiler_start(StartParams::default().interval(LONGEST_INTERVAL)).expect("start");
            wait_until("the sampler has had its first tick", || {
                profiler_get_buffer_info().expect("active").overheads.count > 0
            });
            profiler_stop();
        });
    });
}
