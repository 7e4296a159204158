//! A thousand starts and stops leave nothing behind.

use std::time::Duration;

use crate::common::left_behind::{Holdings, threads};
use crate::common::{self, isolated, thread_names, wait_until};
use gekkota::{StartParams, profiler_start, profiler_stop};

const RESIDENT_SLACK_KIB: usize = 4 * 1024;
/// The C library keeps up to 40 MiB of stacks of threads that were.
const MAPPED_SLACK_KIB: usize = 64 * 1024;

#[test]
fn a_thousand_sessions_leak_neither_threads_nor_memory_nor_descriptors() {
    isolated(|| {
        Holdings::prepare();
        let worker = std::thread::spawn(|| {
            gekkota::register_thread("busy");
            common::work_for(Duration::from_millis(100));
            std::thread::park();
            gekkota::unregister_thread();
        });
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
        (0..50).for_each(|_| cycle());
        // The one trial of the engines outlasts the first sessions.
        wait_until("the trial is over, and the samplers are gone", || {
            let of_sessions = ["EngineTrial", "SamplerThread"];
            thread_names()
                .iter()
                .all(|name| !of_sessions.contains(&name.as_str()))
        });
        let before = Holdings::now();
        (0..1000).for_each(|_| cycle());
        // A thread that was joined may stand there for a moment.
        wait_until("the samplers are gone", || threads() <= before.threads);
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
fn a_stop_is_soon_also_with_a_long_interval() {
    isolated(|| {
        profiler_start(StartParams::default().interval(Duration::from_secs(10))).expect("start");
        std::thread::sleep(Duration::from_millis(20));
        let begin = std::time::Instant::now();
        profiler_stop();
        assert!(
            begin.elapsed() < Duration::from_secs(2),
            "{:?}",
            begin.elapsed()
        );
    });
}
