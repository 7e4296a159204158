//! What does not care about sessions beginning and ending: stacks that a program holds, and its clock; and that a thread which
//! does nothing is charged less than one that works.
#![cfg(has_profiler)]

mod common;

use std::time::Duration;

use common::{Read, Sleeper, work_for_cpu};
use gekkota::{
    ProfilerBacktrace, ProfilerTime, StartParams, ThreadGuard, profiler_capture_backtrace, profiler_shutdown,
    profiler_start, profiler_stop,
};

fn start() {
    profiler_start(StartParams::default()).expect("start");
}

#[test]
fn across_sessions() {
    a_hundred_backtraces_outlive_the_session();
    time_goes_on_through_starts_and_stops();
    an_idle_thread_is_charged_less_than_a_busy_one();
}

#[inline(never)]
fn takes_a_backtrace() -> ProfilerBacktrace {
    let backtrace = profiler_capture_backtrace().expect("memory");
    std::hint::black_box(backtrace)
}

fn a_hundred_backtraces_outlive_the_session() {
    // Names take their time; one in ten is asked for them.
    let are_whole = |some: Vec<ProfilerBacktrace>| {
        let mut asked = some.iter().step_by(10);
        asked.all(|backtrace| backtrace.resolve().to_string().contains("takes_a_backtrace"))
    };
    let mut held: Vec<_> = (0..20).map(|_| takes_a_backtrace()).collect();
    start();
    held.extend((0..100).map(|_| takes_a_backtrace()));
    assert!(are_whole(held.drain(..40).collect()), "in the session");
    profiler_stop();
    assert!(are_whole(held.drain(..40).collect()), "after it");
    start();
    profiler_shutdown();
    assert_eq!(held.len(), 40);
    assert!(are_whole(held), "after the shutdown");
}

fn time_goes_on_through_starts_and_stops() {
    let mut last = ProfilerTime::now();
    let mut look = || {
        let now = ProfilerTime::now();
        assert!(now >= last, "{last:?}, then {now:?}");
        last = now;
    };
    for _ in 0..20 {
        start();
        look();
        profiler_stop();
        look();
        profiler_shutdown();
        look();
    }
}

fn an_idle_thread_is_charged_less_than_a_busy_one() {
    let _idle = Sleeper::start("idle");
    let read = std::thread::spawn(|| {
        let _busy = ThreadGuard::register("busy");
        start();
        work_for_cpu(Duration::from_millis(100));
        Read::of_running()
    });
    let read = read.join().expect("thread");
    profiler_stop();
    let charged = |name: &str| read.samples(name).iter().filter_map(|sample| sample.cpu_ns).sum::<u64>();
    assert!(
        charged("busy") > 80_000_000 && charged("idle") < 5_000_000,
        "{}, {}",
        charged("busy"),
        charged("idle")
    );
    assert!(read.samples("idle").len() > 50, "it has samples all the same");
}
