//! The CPU times of a thread add up to its clock, and those of all threads to that of the process.

use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::time::Duration;

use gekkota::{ProfilerSession, StartParams, register_thread};
use serde_json::Value;

use crate::common::{Read, isolated, one_loop, thread_cpu, work_for_cpu};

const WORKERS: usize = 3;
/// CPU time of each worker.
const CPU_TIME: Duration = Duration::from_millis(300);
/// Interval of the counter of the process's CPU time, and some more.
const COUNTER_INTERVAL: Duration = Duration::from_millis(25);

/// Returns the sum of a thread's CPU times, in ns.
fn sampled_ns(thread: &Value) -> u64 {
    let index = thread["samples"]["schema"]["threadCPUDelta"].as_u64();
    let index = index.expect("a column") as usize;
    let rows = thread["samples"]["data"].as_array().expect("rows");
    rows.iter().filter_map(|row| row[index].as_u64()).sum()
}

/// Records workers that use a fixed CPU time each. The session knows them before they work, and they
/// wait when the profile is taken, so that no CPU time is between two readings of a clock.
fn record() -> Read {
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    let (begin, end) = (Barrier::new(WORKERS + 1), Barrier::new(WORKERS + 1));
    let (has_worked, worked) = channel();
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (begin, end, has_worked) = (&begin, &end, has_worked.clone());
            scope.spawn(move || {
                register_thread(&format!("worker {worker}"));
                has_worked.send(()).expect("the test waits");
                begin.wait();
                work_for_cpu(CPU_TIME);
                has_worked.send(()).expect("the test waits");
                end.wait();
            });
        }
        let all = || worked.iter().take(WORKERS).count();
        assert_eq!(all(), WORKERS, "they have registered");
        // A loop begins with the list of threads.
        one_loop();
        one_loop();
        begin.wait();
        assert_eq!(all(), WORKERS, "they have worked");
        // After this time, the next loop samples the counter. It also reads the workers' clocks.
        std::thread::sleep(COUNTER_INTERVAL);
        one_loop();
        one_loop();
        let profile = session.finish().expect("a profile");
        end.wait();
        Read::from_profile(&profile)
    })
}

#[test]
fn cpu_times_of_all_threads_add_up_to_that_of_the_process() {
    isolated(|| {
        // The first profile finds the files and lists that later ones use.
        drop(record());
        let read = record();
        let counters = read.0["counters"].as_array().expect("counters");
        let counter = counters
            .iter()
            .find(|counter| counter["name"] == "Process CPU");
        let rows = counter.expect("a counter")["samples"]["data"].as_array();
        let counted_ns: u64 = rows
            .into_iter()
            .flatten()
            .filter_map(|row| row[1].as_u64())
            .sum();
        // The profiler's own thread belongs to the process, but has no track.
        let of_profiler_ns = read.count("sampler_cpu_ns");
        let of_threads_ns: u64 = read.threads().iter().map(sampled_ns).sum();
        let sum_ns = of_threads_ns + of_profiler_ns;
        assert!(of_threads_ns >= WORKERS as u64 * CPU_TIME.as_nanos() as u64 * 98 / 100);
        let difference = sum_ns.abs_diff(counted_ns) as f64 / counted_ns as f64;
        assert!(
            difference < 0.02,
            "threads {of_threads_ns} ns, profiler {of_profiler_ns} ns, process {counted_ns} ns"
        );
    });
}

#[test]
fn cpu_times_of_a_thread_that_is_interrupted_often_are_its_clock() {
    isolated(|| {
        let params = StartParams::default()
            .filters(["busy"])
            .interval(Duration::from_micros(200));
        let session = ProfilerSession::start(params).expect("start");
        let (has_worked, worked) = channel();
        let (begin, begins) = channel::<()>();
        let (end, ends) = channel::<()>();
        let worker = std::thread::spawn(move || {
            register_thread("busy");
            has_worked.send(()).expect("the test waits");
            let _ = begins.recv();
            work_for_cpu(CPU_TIME);
            has_worked.send(()).expect("the test waits");
            let _ = ends.recv();
            thread_cpu()
        });
        worked.recv().expect("the worker has registered");
        one_loop();
        one_loop();
        drop(begin);
        worked.recv().expect("the worker has worked");
        one_loop();
        one_loop();
        let profile = session.finish().expect("a profile");
        drop(end);
        let used_ns = worker.join().expect("a thread").as_nanos() as u64;

        let read = Read::from_profile(&profile);
        let sampled_ns = sampled_ns(read.thread("busy"));
        assert!(read.count("captured_samples") > 0);
        assert!(
            sampled_ns <= used_ns && sampled_ns >= used_ns * 95 / 100,
            "in samples {sampled_ns} ns, by the clock {used_ns} ns"
        );
    });
}
