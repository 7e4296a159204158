//! Duration of the storm, and its signals.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Variable with the duration in seconds.
const SECONDS: &str = "STORM_SECONDS";
const DEFAULT_SECONDS: u64 = 60;
/// Length of a round: long enough for its sessions, and short enough for several rounds in a
/// minute.
const ROUND: std::ops::RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(8);

/// The settings of a run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub duration: Duration,
    pub round: Duration,
}

impl Settings {
    pub fn from_environment() -> Result<Self, String> {
        let seconds = match std::env::var(SECONDS) {
            Ok(text) => text
                .parse()
                .ok()
                .filter(|seconds| (8..=100_000).contains(seconds))
                .ok_or_else(|| {
                    format!(
                        "{SECONDS} is {text:?}; accepted: a number of seconds, from 8 to 100000"
                    )
                })?,
            Err(_) => DEFAULT_SECONDS,
        };
        let duration = Duration::from_secs(seconds);
        let round = (duration / 8).clamp(*ROUND.start(), *ROUND.end());
        Ok(Self { duration, round })
    }
}

static SECOND_HALF: AtomicBool = AtomicBool::new(false);

/// Notes that half of the duration is over.
pub fn begin_second_half() {
    SECOND_HALF.store(true, Ordering::Relaxed);
}

pub fn is_second_half() -> bool {
    SECOND_HALF.load(Ordering::Relaxed)
}

/// Returns the signals with which the profiler samples in the storm. pprof also uses the first one.
pub fn sampling_signals() -> [i32; 3] {
    [libc::SIGPROF, libc::SIGURG, libc::SIGRTMIN() + 5]
}
