//! A sleep that is announced while the sampler looks at the thread's last one is shown where it is.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::common::{Read, Sample, isolated, work_for_cpu};
use gekkota::{AutoProfilerThreadSleep, ProfilerSession, SamplingEngine, StartParams};

const INTERVAL: Duration = Duration::from_micros(100);
const LONG: Duration = Duration::from_millis(60);

#[inline(never)]
fn naps_shortly() {
    std::thread::sleep(Duration::from_micros(30));
    black_box(1);
}

#[inline(never)]
fn naps_long() {
    std::thread::sleep(LONG);
    black_box(2);
}

/// Far down a stack, so that a look at it takes a while. Gives the longest short nap.
#[inline(never)]
fn goes_deeper(depth: usize) -> Duration {
    if depth > 0 {
        return black_box(goes_deeper(depth - 1));
    }
    let mut longest = Duration::ZERO;
    for _ in 0..40 {
        work_for_cpu(Duration::from_micros(1500));
        let begin = Instant::now();
        {
            let _asleep = AutoProfilerThreadSleep::new();
            naps_shortly();
        }
        longest = longest.max(begin.elapsed());
        let _asleep = AutoProfilerThreadSleep::new();
        naps_long();
    }
    longest
}

fn is_in(sample: &Sample, function: &str) -> bool {
    sample.stack.iter().any(|frame| frame.contains(function))
}

#[test]
fn an_announcement_belongs_to_the_sleep_that_follows_it() {
    isolated(|| {
        let params = StartParams::default()
            .engine(SamplingEngine::Signals)
            .interval(INTERVAL);
        let session = ProfilerSession::start(params).expect("start");
        let thread = std::thread::spawn(|| {
            gekkota::register_thread("naps");
            goes_deeper(1000)
        });
        let longest = thread.join().expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));
        let samples = read.samples("naps");
        let count = |function| {
            samples
                .iter()
                .filter(|sample| is_in(sample, function))
                .count()
        };
        let runs = samples.split(|sample| !is_in(sample, "::naps_shortly"));
        let longest_run = runs.map(<[Sample]>::len).max().unwrap_or(0);
        println!(
            "the longest short nap: {longest:?} in truth, {longest_run} samples of {INTERVAL:?}; {} in long naps, {} in short \
         ones; {} ticks missed",
            count("::naps_long"),
            count("::naps_shortly"),
            read.count("missed_ticks"),
        );
        // A long nap that is taken for the short one before it has 600 samples, less those that a busy machine missed.
        let most = longest.as_nanos() / INTERVAL.as_nanos() + 50;
        assert!(
            (longest_run as u128) < most,
            "{longest_run} samples of a nap of {longest:?} at most"
        );
        assert!(count("::naps_long") > 10 * count("::naps_shortly"));
    });
}
