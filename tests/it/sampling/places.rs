//! Places: functions in which a thread stays until the test has seen enough samples of it there.
//!
//! A test that lets a thread work or sleep for a fixed time knows neither how many samples the
//! sampler took, nor where the thread was at the time of each. A place makes both certain.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use gekkota::{AutoProfilerLabel, ProfilerTime, gecko_profiler_category};

use crate::common::{Read, Sample, wait_until, work};

/// A place, with the label that its samples have.
pub(crate) struct Place {
    label: &'static str,
    /// Number of stays that have begun, and that may end.
    begun: AtomicUsize,
    released: AtomicUsize,
    /// Begin of the current stay.
    arrived: Mutex<Option<ProfilerTime>>,
    /// The kernel's id of the thread that is here.
    tid: AtomicI32,
}

/// A time during which the thread was at its place, without interruption.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stay {
    pub(crate) from: ProfilerTime,
    pub(crate) until: ProfilerTime,
}

impl Place {
    pub(crate) const fn new(label: &'static str) -> Self {
        Self {
            label,
            begun: AtomicUsize::new(0),
            released: AtomicUsize::new(0),
            arrived: Mutex::new(None),
            tid: AtomicI32::new(0),
        }
    }

    /// Works here until another thread ends the stay.
    #[inline(always)]
    pub(crate) fn work(&self) {
        self.repeat(|| _ = work(1000));
    }

    /// Repeats `body` here until another thread ends the stay.
    #[inline(always)]
    pub(crate) fn repeat(&self, mut body: impl FnMut()) {
        let _label = AutoProfilerLabel::new(self.label, gecko_profiler_category!(Other));
        let stay = self.arrive();
        while self.released.load(Ordering::Acquire) < stay {
            body();
        }
    }

    /// Returns the number of the stay.
    #[inline(never)]
    fn arrive(&self) -> usize {
        // SAFETY: `gettid` only returns a number.
        self.tid.store(unsafe { libc::gettid() }, Ordering::Relaxed);
        *self.arrived.lock().expect("no panic") = Some(ProfilerTime::now());
        self.begun.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Number of the thread's samples at this place so far.
    pub(crate) fn samples(&self, thread: &str) -> usize {
        let read = Read::of_running();
        if !read.threads().iter().any(|known| known["name"] == thread) {
            return 0;
        }
        let samples = read.samples(thread);
        samples.iter().filter(|sample| self.has(sample)).count()
    }

    /// Returns whether the sample was taken at this place.
    pub(crate) fn has(&self, sample: &Sample) -> bool {
        sample.stack.iter().any(|frame| frame == self.label)
    }

    /// Waits until the thread has begun a stay that was not ended yet.
    pub(crate) fn wait_for_thread(&self) {
        wait_until(&format!("the thread is at {:?}", self.label), || {
            self.begun.load(Ordering::Acquire) > self.released.load(Ordering::Acquire)
        });
    }

    /// Waits for the thread, and then until it has `count` more samples here.
    pub(crate) fn wait_for_samples(&self, thread: &str, count: usize) {
        self.wait_for_thread();
        let before = self.samples(thread);
        let what = format!("{thread:?} has {count} more samples at {:?}", self.label);
        wait_until(&what, || self.samples(thread) >= before + count);
    }

    /// Waits until the sampler leaves the sleeping thread alone, and asserts that the thread does
    /// not run for `count` further samples. Returns the time of those samples.
    pub(crate) fn check_left_alone(&self, thread: &str, count: usize) -> Stay {
        self.wait_for_thread();
        // Whether the kernel lets the thread run while it gets samples.
        let is_undisturbed = || {
            let before = self.switches_if_asleep();
            self.wait_for_samples(thread, count);
            before.is_some() && self.switches_if_asleep() == before
        };
        // A signal may have been under way when the thread fell asleep, and the sampler may need
        // its frame pointer. The samples of one answer may reach the profile together, but not
        // those of two.
        let mut undisturbed = 0;
        wait_until("the sampler leaves the thread alone", || {
            undisturbed = if is_undisturbed() { undisturbed + 1 } else { 0 };
            undisturbed == 2
        });
        let from = ProfilerTime::now();
        assert!(is_undisturbed(), "{thread:?} was woken in its sleep");
        let until = ProfilerTime::now();
        Stay { from, until }
    }

    /// Number of times that the thread stopped running, according to the kernel; `None` unless it
    /// sleeps.
    fn switches_if_asleep(&self) -> Option<u64> {
        let tid = self.tid.load(Ordering::Relaxed);
        let status = std::fs::read_to_string(format!("/proc/self/task/{tid}/status"));
        let status = status.expect("the thread's status");
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name));
            value.expect("a field of the status").trim()
        };
        let number = |name| field(name).parse::<u64>().expect("a number");
        let switches = number("voluntary_ctxt_switches:") + number("nonvoluntary_ctxt_switches:");
        field("State:").starts_with('S').then_some(switches)
    }

    /// Ends the current stay. A thread that sleeps must be woken afterwards.
    pub(crate) fn release(&self) -> Stay {
        let stay = Stay {
            from: self.arrived.lock().expect("no panic").expect("a stay"),
            until: ProfilerTime::now(),
        };
        self.released.fetch_add(1, Ordering::AcqRel);
        stay
    }

    /// Ends the current stay once the thread has `count` more samples here.
    pub(crate) fn release_after(&self, thread: &str, count: usize) -> Stay {
        self.wait_for_samples(thread, count);
        self.release()
    }
}

/// Converts a time to the profile's, in ms since its start.
pub(crate) fn profile_ms(read: &Read, time: ProfilerTime) -> f64 {
    let start = read.0["meta"]["startTimeAsClockMonotonicNanosecondsSinceBoot"].clone();
    let start: ProfilerTime = serde_json::from_value(start).expect("nanoseconds");
    time.duration_since(start).as_secs_f64() * 1e3
}

/// Returns the samples from this stay.
pub(crate) fn samples_of_stay<'a>(
    read: &Read,
    samples: &'a [Sample],
    stay: Stay,
) -> Vec<&'a Sample> {
    let (from, until) = (profile_ms(read, stay.from), profile_ms(read, stay.until));
    let is_within = |sample: &&Sample| sample.time_ms > from && sample.time_ms < until;
    samples.iter().filter(is_within).collect()
}

/// Asserts that each sample from the stay was taken at the place, and returns their number.
///
/// The last sample is exempt. It has the time at which its tick began. If the sampler was delayed
/// between that time and its request, the thread may have left before the request.
#[track_caller]
pub(crate) fn check_stay(
    read: &Read,
    samples: &[Sample],
    stay: Stay,
    is_at_place: impl Fn(&Sample) -> bool,
) -> usize {
    let within = samples_of_stay(read, samples, stay);
    let certain = &within[..within.len().saturating_sub(1)];
    let wrong: Vec<_> = certain
        .iter()
        .filter(|sample| !is_at_place(sample))
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of {} samples are elsewhere, the first: {:?}",
        wrong.len(),
        certain.len(),
        wrong[0]
    );
    certain.len()
}

/// Returns whether a function with this name is on the sample's stack.
pub(crate) fn is_in(sample: &Sample, function: &str) -> bool {
    sample.stack.iter().any(|frame| frame.contains(function))
}
