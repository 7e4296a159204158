//! Records a long profile: 16 threads with deep, varying stacks that run in short bursts, so that
//! most samples are of threads that ran, even on few processors.

use std::io;
use std::time::{Duration, Instant};

use gekkota::{ProfilerSession, StartParams};

use crate::deep::{self, Rhythm};
use crate::profile::Counts;
use crate::study::Fallible;

const THREADS: usize = 16;
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
pub(crate) fn record(session: &ProfilerSession, samples: u64) -> Fallible<String> {
    /// Maximum recording time, several times what two processors need.
    const TIMEOUT: Duration = Duration::from_secs(300);
    let threads = deep::start(THREADS, Rhythm::Bursts(PAUSE))?;
    let recorded = || -> Fallible<f64> {
        let counts = Counts::of(&session.snapshot()?);
        let kinds = ["captured_samples", "remote_samples", "same_samples"];
        Ok(kinds.iter().map(|kind| counts.get(kind)).sum())
    };
    let begin = Instant::now();
    while recorded()? < samples as f64 && begin.elapsed() < TIMEOUT {
        std::thread::sleep(Duration::from_millis(200));
    }
    drop(threads);
    let recorded = recorded()?;
    if recorded < samples as f64 {
        return Err(format!(
            "cannot record: got {recorded} samples in {TIMEOUT:?}, expected {samples}"
        )
        .into());
    }
    Ok(format!(
        "{recorded} samples in {:.1} s",
        begin.elapsed().as_secs_f64()
    ))
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
