//! The CPU time that the profile shows for a function is the time that the program itself measures.
//!
//! `cargo peers` measures how exact the shares of short functions are.

use std::io::{PipeReader, Read as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Read, isolated, thread_cpu, work};
use crate::sampling::places::{Place, is_in};
use gekkota::{ProfilerSession, StartParams};

const THREAD: &str = "busy";
/// Number of samples to see of each function, and of each sleep.
const THREE_PARTS: usize = 150;
const ONE_PART: usize = 50;
const SLEEP: usize = 5;
/// Maximum CPU time between a request and its answer that the request's samples leave out.
const REQUEST_TOLERANCE: Duration = Duration::from_millis(1);

static IN_THREE_PARTS: Place = Place::new("three parts");
static IN_ONE_PART: Place = Place::new("one part");
static ASLEEP: Place = Place::new("asleep");
/// The thread's CPU clock, in ns, as the thread itself has read it.
static CPU_NS: AtomicU64 = AtomicU64::new(0);

#[inline(never)]
fn three_parts() {
    IN_THREE_PARTS.repeat(work_and_read_clock);
    std::hint::black_box(3);
}

#[inline(never)]
fn one_part() {
    IN_ONE_PART.repeat(work_and_read_clock);
    std::hint::black_box(1);
}

fn work_and_read_clock() {
    work(1000);
    CPU_NS.store(thread_cpu().as_nanos() as u64, Ordering::Release);
}

fn sleep(wake_ups: &mut PipeReader) {
    ASLEEP.repeat(|| wake_ups.read_exact(&mut [0]).expect("one byte"));
}

/// The thread's CPU clock around a function.
struct Clocks {
    before_sleep: Duration,
    begin: Duration,
    end: Duration,
}

/// Runs the function between two sleeps. So the sampler has a reading of the clock from shortly
/// before, and charges the rest of the function's time to the second sleep.
fn run(function: fn(), wake_ups: &mut PipeReader) -> Clocks {
    let before_sleep = thread_cpu();
    sleep(wake_ups);
    let begin = thread_cpu();
    function();
    let end = thread_cpu();
    sleep(wake_ups);
    Clocks {
        before_sleep,
        begin,
        end,
    }
}

/// Waits for samples of a function. Returns a reading of the thread's clock that they include.
fn sample_function(place: &Place, count: usize, wake: &mut impl FnMut()) -> Duration {
    let mut end_sleep = || {
        ASLEEP.release_after(THREAD, SLEEP);
        wake();
    };
    end_sleep();
    place.wait_for_samples(THREAD, count);
    let seen = Duration::from_nanos(CPU_NS.load(Ordering::Acquire));
    place.release_after(THREAD, 2);
    end_sleep();
    seen
}

#[test]
fn cpu_time_of_functions_is_the_time_that_the_program_measures() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let (mut wake_ups, mut writer) = std::io::pipe().expect("a pipe");
        let mut wake = || writer.write_all(&[0]).expect("the thread reads");
        let thread = std::thread::spawn(move || {
            gekkota::register_thread(THREAD);
            let clocks = [three_parts, one_part].map(|function| run(function, &mut wake_ups));
            // From here on, no sample is taken.
            gekkota::unregister_thread();
            clocks
        });
        let seen = [
            sample_function(&IN_THREE_PARTS, THREE_PARTS, &mut wake),
            sample_function(&IN_ONE_PART, ONE_PART, &mut wake),
        ];
        let clocks = thread.join().expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));

        let samples = read.samples(THREAD);
        for ((function, clocks), seen) in ["::three_parts", "::one_part"]
            .into_iter()
            .zip(clocks)
            .zip(seen)
        {
            let of_function = samples.iter().filter(|sample| is_in(sample, function));
            let cpu_ns = of_function.map(|sample| sample.cpu_ns.expect("CPU time"));
            let shown = Duration::from_nanos(cpu_ns.sum());
            let least = seen.saturating_sub(clocks.begin);
            let most = clocks.end - clocks.before_sleep;
            println!("{function}: {shown:?} shown, between {least:?} and {most:?} measured");
            assert!(
                shown + REQUEST_TOLERANCE >= least && shown <= most + REQUEST_TOLERANCE,
                "{function}: {shown:?} is not between {least:?} and {most:?}"
            );
        }
    });
}
