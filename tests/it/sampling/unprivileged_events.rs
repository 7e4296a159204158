//! An unprivileged user, who may not count the kernel's time, has events nevertheless.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{
    Read, Sample, become_nobody, in_forked_child, isolated, open_cpu_event, thread_cpu, wait_until,
    work,
};
use crate::sampling::places::Place;
use gekkota::{AutoProfilerLabel, ProfilerSession, StartParams, gecko_profiler_category};

const THREAD: &str = "unprivileged";
/// Number of samples to see.
const SAMPLES: usize = 100;
/// Maximum CPU time between a request and its answer that the request's samples leave out.
const REQUEST_TOLERANCE_NS: u64 = 1_000_000;

static REGISTERED: Place = Place::new("registered");
static WORKING: Place = Place::new("working");
/// The thread's CPU clock, in ns, as the thread itself has read it.
static SAMPLED_CPU_NS: AtomicU64 = AtomicU64::new(0);
static CPU_NS: AtomicU64 = AtomicU64::new(0);

fn store_cpu(clock: &AtomicU64) {
    clock.store(thread_cpu().as_nanos() as u64, Ordering::Release);
}

fn profile_as_nobody() -> String {
    become_nobody();
    if let Err(error) = open_cpu_event(1_000_000, true) {
        return format!("!!! SKIPPED: the kernel refuses events to unprivileged users: {error}");
    }
    let kernel_too = open_cpu_event(1_000_000, false).is_ok();
    let params = StartParams::default();
    let session = ProfilerSession::start(params).expect("start");
    let body = || {
        gekkota::register_thread(THREAD);
        REGISTERED.work();
        store_cpu(&SAMPLED_CPU_NS);
        // Mostly outside of the kernel, where such an event interrupts a thread.
        WORKING.repeat(|| {
            let label = AutoProfilerLabel::new("burst", gecko_profiler_category!(Other));
            work(100_000);
            drop(label);
            store_cpu(&CPU_NS);
            std::thread::sleep(Duration::from_millis(1));
        });
    };
    let thread = std::thread::spawn(body);
    REGISTERED.release_after(THREAD, 1);
    WORKING.wait_for_samples(THREAD, SAMPLES);
    wait_until("the event interrupts the thread", || {
        let read = Read::of_running();
        let ran = |sample: &&Sample| sample.stack.iter().any(|frame| frame == "burst");
        let running = read.samples(THREAD).iter().filter(ran).count();
        read.count("threads_with_events") > 0 && running >= SAMPLES
    });
    let seen_ns = CPU_NS.load(Ordering::Acquire);
    WORKING.release_after(THREAD, 2);
    thread.join().expect("thread");
    let read = Read::from_profile(&session.finish().expect("profile"));
    let samples = read.samples(THREAD);
    let cpu_ns: u64 = samples.iter().filter_map(|sample| sample.cpu_ns).sum();
    let worked_ns = seen_ns.saturating_sub(SAMPLED_CPU_NS.load(Ordering::Acquire));
    let refused = read.count("refused_events");
    let found = format!(
        "the kernel may be counted: {kernel_too}; {} samples of {cpu_ns} ns of CPU time, at least {worked_ns}; {refused} \
         events refused, {} silent, {} ticks missed",
        samples.len(),
        read.count("silent_events"),
        read.count("missed_ticks"),
    );
    assert_eq!(refused, 0, "{found}");
    assert!(cpu_ns + REQUEST_TOLERANCE_NS >= worked_ns, "{found}");
    found
}

#[test]
fn unprivileged_user_has_events() {
    isolated(|| {
        println!("{}", in_forked_child(profile_as_nobody));
    });
}
