//! Records a long profile: 16 threads with deep, varying stacks that run in short bursts, so that
//! most samples are of threads that ran, even on few processors.

use std::error::Error;
use std::io;
use std::time::{Duration, Instant};

use gekkota::{Profile, ProfilerSession, StartParams};

use crate::deep::{DeepThreads, Rhythm};
use crate::profile::count;

pub(crate) const THREADS: usize = 16;
/// Sampling interval: a million samples take less than a minute.
pub(crate) const INTERVAL: Duration = Duration::from_micros(500);
/// Sleep between bursts. The kernel adds about 50 µs, so each thread wakes once between two ticks.
const PAUSE: Duration = Duration::from_micros(350);
/// Buffer size: large enough that none of a million samples is discarded.
const CAPACITY_BYTES: u64 = 1 << 30;

pub(crate) fn params() -> StartParams {
    StartParams::default()
        .interval(INTERVAL)
        .capacity_bytes(CAPACITY_BYTES)
        .filters(["deep"])
}

/// Records in a running session with these parameters until it has `samples` samples. Returns a
/// description of the recording.
pub(crate) fn record(session: &ProfilerSession, samples: u64) -> Result<String, Box<dyn Error>> {
    /// Maximum recording time, several times what two processors need.
    const TIMEOUT: Duration = Duration::from_secs(300);
    let threads = DeepThreads::start(THREADS, Rhythm::Bursts(PAUSE))?;
    let begin = Instant::now();
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let so_far = Samples::of(&session.snapshot()?);
        if so_far.all() >= samples || begin.elapsed() > TIMEOUT {
            break;
        }
    }
    drop(threads);
    let recorded = Samples::of(&session.snapshot()?);
    if recorded.all() < samples {
        return Err(format!(
            "cannot record: got {} samples in {TIMEOUT:?}, expected {samples}",
            recorded.all()
        )
        .into());
    }
    Ok(format!(
        "{} samples in {:.1} s: {} by the threads' handlers, {} remote, {} of threads that had not run",
        recorded.all(),
        begin.elapsed().as_secs_f64(),
        recorded.captured,
        recorded.from_outside,
        recorded.same,
    ))
}

/// The samples of a session, by kind.
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
            from_outside: count("remote_samples"),
            same: count("same_samples"),
        }
    }

    fn all(&self) -> u64 {
        self.captured + self.from_outside + self.same
    }
}

/// A writer that only counts the bytes.
#[derive(Default)]
pub(crate) struct CountingSink {
    pub(crate) bytes: u64,
}

impl io::Write for CountingSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Keeps the compiler from removing the code that produced the bytes.
        self.bytes += std::hint::black_box(bytes).len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
