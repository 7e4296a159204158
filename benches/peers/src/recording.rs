//! A long profile: samples of 16 threads whose stacks are deep and vary, each of which runs in short bursts, so that most
//! samples are of threads that ran, on few processors too.

use std::error::Error;
use std::io;
use std::time::{Duration, Instant};

use gekkota::{Profile, ProfilerSession, StartParams};

use crate::deep::{DeepThreads, Rhythm};
use crate::profile::count;

pub(crate) const THREADS: usize = 16;
/// So that a million samples take less than a minute.
pub(crate) const INTERVAL: Duration = Duration::from_micros(500);
/// Of a sleep, which the kernel makes 50 µs longer: each thread wakes between two ticks.
const PAUSE: Duration = Duration::from_micros(350);
/// Nothing of a million samples is given up.
const CAPACITY_BYTES: u64 = 1 << 30;

pub(crate) fn params() -> StartParams {
    StartParams::default()
        .interval(INTERVAL)
        .capacity_bytes(CAPACITY_BYTES)
        .filters(["deep"])
}

/// Records with a running session of these parameters until it has so many samples. Gives a sentence on it.
pub(crate) fn record(session: &ProfilerSession, samples: u64) -> Result<String, Box<dyn Error>> {
    /// Several times as long as it takes on two processors.
    const LONGEST: Duration = Duration::from_secs(300);
    let threads = DeepThreads::start(THREADS, Rhythm::Bursts(PAUSE))?;
    let begin = Instant::now();
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let so_far = Samples::of(&session.snapshot()?);
        if so_far.all() >= samples || begin.elapsed() > LONGEST {
            break;
        }
    }
    drop(threads);
    let recorded = Samples::of(&session.snapshot()?);
    if recorded.all() < samples {
        return Err(format!("{} samples in {LONGEST:?}, too few", recorded.all()).into());
    }
    Ok(format!(
        "{} samples in {:.1} s, {} by the threads' handlers, {} from outside, {} of threads that had not run",
        recorded.all(),
        begin.elapsed().as_secs_f64(),
        recorded.captured,
        recorded.from_outside,
        recorded.same,
    ))
}

/// What a session has taken.
struct Samples {
    captured: u64,
    from_outside: u64,
    same: u64,
}

impl Samples {
    fn of(profile: &Profile) -> Self {
        let count = |name| count(profile, name).unwrap_or(0);
        Self {
            captured: count("captured_samples"),
            from_outside: count("samples_from_outside"),
            same: count("same_samples"),
        }
    }

    fn all(&self) -> u64 {
        self.captured + self.from_outside + self.same
    }
}

/// Counts what is written.
#[derive(Default)]
pub(crate) struct CountingSink {
    pub(crate) bytes: u64,
}

impl io::Write for CountingSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // So that the compiler leaves out nothing of what made them.
        self.bytes += std::hint::black_box(bytes).len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
