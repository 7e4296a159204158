//! Memory over time: whether a process that does the same all the time grows.

use std::fs;
use std::time::{Duration, Instant};

/// Maximum growth over the last half.
const MOST_GROWTH_KIB: f64 = 1024.0;
/// Minimum duration of a run that is judged. Before, the pools are still growing: of the profiler's
/// slots, and of the stacks that the C library keeps.
const JUDGED_FROM: Duration = Duration::from_secs(1800);

/// The process's resident memory at some moments.
pub struct Steadiness {
    start: Instant,
    rows: Vec<Row>,
}

struct Row {
    seconds: f64,
    kib: f64,
    /// Memory that belongs to no file. The rest are pages of files that the process has touched.
    anonymous_kib: u64,
}

/// Returns the resident memory in KiB: the total, and the part without a file. Counts each page,
/// while `/proc/self/statm` may be some hundred pages late.
fn resident_kib() -> (u64, u64) {
    // SAFETY: the call releases only memory that is not in use.
    unsafe { libc::malloc_trim(0) };
    let text = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let number = line.unwrap_or_default().trim().trim_end_matches(" kB");
        number.parse().unwrap_or(0)
    };
    (kib("Rss:"), kib("Anonymous:"))
}

impl Steadiness {
    pub fn begin() -> Self {
        Self {
            start: Instant::now(),
            rows: Vec::new(),
        }
    }

    /// Measures, while the process is at rest.
    pub fn measure(&mut self) {
        let (all, anonymous_kib) = resident_kib();
        self.rows.push(Row {
            seconds: self.start.elapsed().as_secs_f64(),
            kib: all as f64,
            anonymous_kib,
        });
    }

    /// Returns the growth over the last half, in KiB: its length times the median slope of all
    /// pairs of measurements (Theil and Sen). A single measurement depends on what the last
    /// sessions did.
    fn growth_kib(&self, last_half: &[Row]) -> f64 {
        let mut slopes: Vec<f64> = Vec::new();
        for (index, late) in last_half.iter().enumerate() {
            let earlier = last_half[..index].iter();
            slopes.extend(
                earlier.map(|early| (late.kib - early.kib) / (late.seconds - early.seconds)),
            );
        }
        slopes.sort_by(f64::total_cmp);
        let slope = slopes.get(slopes.len() / 2).copied().unwrap_or(0.0);
        slope * self.start.elapsed().as_secs_f64() / 2.0
    }

    /// Prints the memory over time, and returns a problem if it grew in a run that is long enough.
    pub fn judge(&self, what: &str) -> Option<String> {
        let length = self.start.elapsed();
        let half = length.as_secs_f64() / 2.0;
        let middle = self.rows.partition_point(|row| row.seconds < half);
        let last_half = &self.rows[middle..];
        if last_half.len() < 2 {
            println!("{what}: too few measurements of the resident memory");
            return None;
        }
        let growth = self.growth_kib(last_half);
        let tenths = (1..=10).filter_map(|tenth| {
            let index = (self.rows.len() * tenth).div_ceil(10);
            Some(format!("{:.0}", self.rows.get(index.checked_sub(1)?)?.kib))
        });
        let (first, last) = (&last_half[0], &last_half[last_half.len() - 1]);
        println!(
            "{what}: resident memory in KiB after each tenth of the run: {}",
            tenths.collect::<Vec<_>>().join(" ")
        );
        println!(
            "{what}: from {:.0} KiB ({} without files) to {:.0} KiB ({}) in the last half, a trend of {growth:+.0} KiB",
            first.kib, first.anonymous_kib, last.kib, last.anonymous_kib
        );
        if length < JUDGED_FROM {
            println!(
                "{what}: a run of less than {JUDGED_FROM:?} cannot show whether memory is flat"
            );
            return None;
        }
        (growth > MOST_GROWTH_KIB).then(|| {
            format!("{what}: resident memory grew by {growth:.0} KiB over the last half, expected at most {MOST_GROWTH_KIB}")
        })
    }
}
