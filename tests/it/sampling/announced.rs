//! A thread that announces a sleep while the sampler looks at the thread's last one is shown where
//! it sleeps.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{Read, Sample, isolated, wait_until, work_for_cpu};
use crate::sampling::places::{Stay, check_stay, is_in};
use gekkota::{AutoProfilerThreadSleep, ProfilerSession, ProfilerTime, StartParams};

const INTERVAL: Duration = Duration::from_micros(100);
const LONG: Duration = Duration::from_millis(40);
const ROUNDS: usize = 20;
const THREAD: &str = "naps";

static IS_OVER: AtomicBool = AtomicBool::new(false);
static LONG_NAPS: Mutex<Vec<Stay>> = Mutex::new(Vec::new());

#[inline(never)]
fn naps_shortly() {
    std::thread::sleep(Duration::from_micros(30));
    black_box(1);
}

/// Returns a time that lies entirely within the nap. A busy machine may let the thread run again
/// only long after it has woken.
#[inline(never)]
fn naps_long() -> Stay {
    let from = ProfilerTime::now();
    std::thread::sleep(LONG);
    let until = from.add_microseconds(LONG.as_secs_f64() * 1e6);
    black_box(Stay { from, until })
}

/// Naps at the bottom of a deep stack, which takes the sampler a while to copy.
#[inline(never)]
fn goes_deeper(depth: usize) -> usize {
    if depth > 0 {
        return black_box(goes_deeper(depth - 1)) + 1;
    }
    let mut rounds = 0;
    while rounds < ROUNDS || !IS_OVER.load(Ordering::Relaxed) {
        work_for_cpu(Duration::from_micros(1500));
        {
            let _asleep = AutoProfilerThreadSleep::new();
            naps_shortly();
        }
        let _asleep = AutoProfilerThreadSleep::new();
        let nap = naps_long();
        LONG_NAPS.lock().expect("no panic").push(nap);
        rounds += 1;
    }
    0
}

/// Asserts that the samples from long naps were taken at the place, and returns their number.
fn samples_in_naps(read: &Read, samples: &[Sample], is_at_place: fn(&Sample) -> bool) -> usize {
    let naps = LONG_NAPS.lock().expect("no panic").clone();
    naps.into_iter()
        .map(|nap| check_stay(read, samples, nap, is_at_place))
        .sum()
}

#[test]
fn announcement_belongs_to_the_sleep_that_follows_it() {
    isolated(|| {
        let params = StartParams::default().interval(INTERVAL);
        let session = ProfilerSession::start(params).expect("start");
        let thread = std::thread::spawn(|| {
            gekkota::register_thread(THREAD);
            goes_deeper(1000)
        });
        wait_until("there are samples from long naps", || {
            let read = Read::of_running();
            let is_known = read.threads().iter().any(|known| known["name"] == THREAD);
            is_known && samples_in_naps(&read, &read.samples(THREAD), |_| true) >= 100
        });
        IS_OVER.store(true, Ordering::Relaxed);
        assert_eq!(thread.join().expect("thread"), 1000);
        let read = Read::from_profile(&session.finish().expect("profile"));
        let samples = read.samples(THREAD);
        let in_naps = samples_in_naps(&read, &samples, |sample| is_in(sample, "::naps_long"));
        println!(
            "{in_naps} samples of long naps, {} in all; {} ticks missed",
            samples.len(),
            read.count("missed_ticks"),
        );
    });
}
