//! An ordinary user, who may not count what the kernel runs, has timers all the same.

use std::time::Duration;

use crate::common::{
    Read, become_nobody, in_forked_child, isolated, open_cpu_event, thread_cpu, work,
};
use gekkota::{ProfilerSession, SamplingEngine, StartParams};

/// Long beside the time after which a busy machine lets the sampler run for the first time.
const CPU_MS: u64 = 1000;

fn profile_as_nobody() -> String {
    become_nobody();
    if let Err(error) = open_cpu_event(1_000_000, true) {
        return format!("!!! SKIPPED: ordinary users get no events here: {error}");
    }
    let kernel_too = open_cpu_event(1_000_000, false).is_ok();
    let params = StartParams::default().engine(SamplingEngine::LocalTimers);
    let session = ProfilerSession::start(params).expect("start");
    let body = || {
        gekkota::register_thread("nobody's");
        // Outside of the kernel, where such a timer stops a thread.
        let end = thread_cpu() + Duration::from_millis(CPU_MS);
        while thread_cpu() < end {
            work(100_000);
        }
    };
    std::thread::spawn(body).join().expect("thread");
    let read = Read::from_profile(&session.finish().expect("profile"));
    let samples = read.samples("nobody's");
    let cpu_ns: u64 = samples.iter().filter_map(|sample| sample.cpu_ns).sum();
    let (refused, silent, missed) = (
        read.count("refused_timers"),
        read.count("silent_timers"),
        read.count("missed_ticks"),
    );
    let found = format!(
        "the kernel may be counted: {kernel_too}; {} samples of {} ms of CPU time, {refused} timers refused, {silent} \
         silent, {missed} ticks missed",
        samples.len(),
        cpu_ns / 1_000_000
    );
    // Each stops the thread, but for the few that met it in the kernel.
    assert!(
        refused == 0 && silent * 20 < samples.len() as u64,
        "{found}"
    );
    assert!(
        samples.len() as u64 + missed > CPU_MS / 2 && samples.len() > 20,
        "{found}"
    );
    assert!(cpu_ns > CPU_MS * 800_000, "{found}");
    found
}

#[test]
fn an_ordinary_user_has_timers() {
    isolated(|| {
        println!("{}", in_forked_child(profile_as_nobody));
    });
}
