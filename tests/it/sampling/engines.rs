//! The same samples are recorded with events of the threads' CPU clocks and without them, and the profile
//! names the engine.

use std::io::{PipeReader, Read as _, Write as _};
use std::time::Duration;

use crate::common::{Read, isolated, registered_threads_only, thread_cpu};
use crate::sampling::places::{Place, check_stay, is_in};
use gekkota::ProfilerSession;

/// Number of samples to see at each place.
const SAMPLES: usize = 30;
const THREAD: &str = "busy";

/// Maximum CPU time between a request and its answer that the request's samples leave out.
const REQUEST_TOLERANCE: Duration = Duration::from_millis(1);

static REGISTERED: Place = Place::new("registered");
static WORKING: Place = Place::new("working");
static SLEEPING: Place = Place::new("sleeping");

#[inline(never)]
fn inner() {
    WORKING.work();
    std::hint::black_box(1);
}

/// Returns the thread's CPU time before it sleeps.
#[inline(never)]
fn outer(wake_ups: &mut PipeReader) -> Duration {
    inner();
    let asleep = std::hint::black_box(thread_cpu());
    SLEEPING.repeat(|| wake_ups.read_exact(&mut [0]).expect("one byte"));
    std::hint::black_box(asleep)
}

fn engine_of(read: &Read) -> &str {
    read.0["meta"]["samplingEngine"]
        .as_str()
        .expect("an engine")
}

/// Records a thread that works and then sleeps, and checks each sample.
fn check(signal: i32) -> Read {
    let session = ProfilerSession::start(registered_threads_only().signal(signal)).expect("start");
    let (mut wake_ups, mut wake) = std::io::pipe().expect("a pipe");
    let thread = std::thread::spawn(move || {
        let begin = thread_cpu();
        gekkota::register_thread(THREAD);
        REGISTERED.work();
        let sampled = thread_cpu();
        let asleep = outer(&mut wake_ups);
        // From here on, no sample is taken.
        gekkota::unregister_thread();
        (asleep - sampled, thread_cpu() - begin)
    });
    REGISTERED.release_after(THREAD, 1);
    let working = WORKING.release_after(THREAD, SAMPLES);
    let sleeping = SLEEPING.release_after(THREAD, SAMPLES);
    wake.write_all(&[0]).expect("the thread reads");
    let (least_cpu, most_cpu) = thread.join().expect("thread");
    let read = Read::from_profile(&session.finish().expect("profile"));

    let samples = read.samples(THREAD);
    let worked = check_stay(&read, &samples, working, |sample| is_in(sample, "::inner"));
    let slept = check_stay(&read, &samples, sleeping, |sample| {
        is_in(sample, "::outer") && !is_in(sample, "::inner")
    });
    let cpu_ns = samples
        .iter()
        .map(|sample| sample.cpu_ns.expect("CPU time"));
    let cpu = Duration::from_nanos(cpu_ns.sum());
    println!(
        "{}: {} samples, {worked} working, {slept} sleeping; {cpu:?} is between {least_cpu:?} and {most_cpu:?}; silent events {}",
        engine_of(&read),
        samples.len(),
        read.count("silent_events"),
    );
    assert!(worked >= SAMPLES - 1 && slept >= SAMPLES - 1);
    assert!(
        samples
            .iter()
            .filter(|sample| is_in(sample, "::inner"))
            .all(|sample| is_in(sample, "::outer"))
    );
    assert!(
        cpu + REQUEST_TOLERANCE >= least_cpu && cpu <= most_cpu,
        "{cpu:?} is not between {least_cpu:?} and {most_cpu:?}"
    );
    assert!(
        samples
            .windows(2)
            .all(|pair| pair[0].time_ms <= pair[1].time_ms)
    );
    read
}

#[test]
fn samples_with_and_without_events_are_the_same() {
    isolated(|| {
        // A thread has no event with a real-time signal.
        let signals = check(libc::SIGRTMIN() + 1);
        assert_eq!(engine_of(&signals), "signals");
        let usual = check(libc::SIGURG);
        let is_refused = usual.count("refused_events") > 0;
        if is_refused {
            println!("!!! SKIPPED: the kernel refuses events");
        }
        let expected = if is_refused { "signals" } else { "task clock" };
        assert_eq!(engine_of(&usual), expected);
    });
}
