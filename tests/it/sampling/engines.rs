//! Both engines give the same samples; the profile names the one that was used.

use std::time::Duration;

use crate::common::{self, Read, isolated, thread_cpu, work_for_cpu};
use gekkota::{ProfilerSession, SamplingEngine, StartParams};

#[inline(never)]
fn inner() {
    work_for_cpu(Duration::from_millis(300));
    std::hint::black_box(1);
}

#[inline(never)]
fn outer() {
    inner();
    std::hint::black_box(2);
    std::thread::sleep(Duration::from_millis(100));
    std::hint::black_box(3);
}

fn profile_with(engine: SamplingEngine) -> (Read, Duration) {
    let session = ProfilerSession::start(StartParams::default().engine(engine)).expect("start");
    let thread = std::thread::spawn(|| {
        gekkota::register_thread("busy");
        let before = thread_cpu();
        outer();
        thread_cpu() - before
    });
    let cpu = thread.join().expect("thread");
    (Read::from_profile(&session.finish().expect("profile")), cpu)
}

fn engine_of(read: &Read) -> &str {
    read.0["meta"]["samplingEngine"]
        .as_str()
        .expect("an engine")
}

/// Captured samples of `inner`, and the CPU time that they and all stand for.
fn check(read: &Read, cpu: Duration) {
    let samples = read.samples("busy");
    let cpu_ms = |sample: &common::Sample| sample.cpu_ns.unwrap_or(0) as f64 / 1e6;
    let in_inner = || {
        samples
            .iter()
            .filter(|sample| sample.stack.iter().any(|frame| frame.contains("::inner")))
    };
    let asleep = samples.iter().filter(|sample| {
        let within = |name: &str| sample.stack.iter().any(|frame| frame.contains(name));
        within("::outer") && within("sleep")
    });
    let (shown, all): (f64, f64) = (
        in_inner().map(cpu_ms).sum(),
        samples.iter().map(cpu_ms).sum(),
    );
    let truth = cpu.as_secs_f64() * 1e3;
    println!(
        "{}: {} samples in `inner` of {}, {} asleep, {shown:.1} ms of {all:.1} ms, in truth {truth:.1} ms; silent timers {}",
        engine_of(read),
        in_inner().count(),
        samples.len(),
        asleep.clone().count(),
        read.count("silent_timers"),
    );
    assert!(in_inner().all(|sample| sample.stack.iter().any(|frame| frame.contains("::outer"))));
    // A tick's CPU time at either end may stand elsewhere; on a busy machine more.
    assert!((shown / truth - 1.0).abs() < 0.1 && (all / truth - 1.0).abs() < 0.1);
    assert!(asleep.count() > 30);
    assert!(
        samples
            .windows(2)
            .all(|pair| pair[0].time_ms <= pair[1].time_ms)
    );
}

#[test]
fn both_engines_tell_the_same() {
    isolated(|| {
        let (signals, cpu) = profile_with(SamplingEngine::Signals);
        assert_eq!(engine_of(&signals), "signals");
        check(&signals, cpu);
        assert_eq!(signals.count("silent_timers"), 0);

        let (timers, cpu) = profile_with(SamplingEngine::LocalTimers);
        assert_eq!(engine_of(&timers), "local timers");
        // Where the system makes no timers, signals are sent, and the samples are there all the same.
        check(&timers, cpu);
        println!(
            "timers refused for {} threads",
            timers.count("refused_timers")
        );

        let (auto, cpu) = profile_with(SamplingEngine::Auto);
        check(&auto, cpu);
        let log = &auto.0["profilingLog"][std::process::id().to_string()];
        println!("by trial: {}, {}", engine_of(&auto), log["engineTrial"]);
    });
}
