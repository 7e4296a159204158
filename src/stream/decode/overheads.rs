//! Writes the cost of each sampler tick: Gecko's `profilerOverhead`, if
//! `MOZ_PROFILER_RECORD_OVERHEADS` is set.
//!
//! The columns have the names that the viewer knows. `locking` is the time for updating the lists
//! of threads and modules, in which the sampler takes its locks. `expiredMarkerCleaning` is the
//! time for maintaining the buffer's chunks. The sampler does not record overheads during a pause.

use crate::buffer::{EntryReader, EntryWriter};
use crate::json::JsonWriter;
use crate::stream::schema::write_schema;

/// The cost of one tick.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overhead {
    /// Time of the tick, in ns since the process began.
    pub(crate) time_ns: u64,
    locking_ns: u64,
    counters_ns: u64,
    threads_ns: u64,
    cleaning_ns: u64,
}

impl Overhead {
    /// Reads an entry whose kind was already read.
    pub(crate) fn read(entry: &mut EntryReader<'_>) -> Option<Self> {
        Some(Self {
            time_ns: entry.number()?,
            locking_ns: entry.number()?,
            counters_ns: entry.number()?,
            threads_ns: entry.number()?,
            cleaning_ns: entry.number()?,
        })
    }

    fn sum_ns(&self) -> u64 {
        [
            self.locking_ns,
            self.counters_ns,
            self.threads_ns,
            self.cleaning_ns,
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }
}

/// The sum, the minimum and the maximum of a series of numbers.
#[derive(Clone, Copy, Debug)]
struct Spread {
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
}

impl Default for Spread {
    fn default() -> Self {
        Self {
            count: 0,
            sum: 0,
            min: u64::MAX,
            max: 0,
        }
    }
}

impl Spread {
    fn add(&mut self, number: u64) {
        self.count += 1;
        self.sum = self.sum.saturating_add(number);
        self.min = self.min.min(number);
        self.max = self.max.max(number);
    }

    /// Writes the mean, the minimum and the maximum, in units of `ns_per_unit` nanoseconds.
    fn write(&self, json: &mut JsonWriter<'_>, name: &str, ns_per_unit: f64) {
        let mean = self.sum as f64 / self.count.max(1) as f64;
        let values = [
            ("mean", mean),
            ("min", self.min as f64),
            ("max", self.max as f64),
        ];
        for (prefix, ns) in values {
            json.key(&format!("{prefix}{name}")).float(ns / ns_per_unit);
        }
    }
}

/// Statistics over all ticks.
#[derive(Clone, Debug, Default)]
struct OverheadStatistics {
    times_ns: Option<(u64, u64)>,
    intervals: Spread,
    overheads: Spread,
    lockings: Spread,
    cleanings: Spread,
    counters: Spread,
    threads: Spread,
}

impl OverheadStatistics {
    fn add(&mut self, overhead: &Overhead) {
        let (first_ns, last_ns) = self
            .times_ns
            .unwrap_or((overhead.time_ns, overhead.time_ns));
        if self.times_ns.is_some() {
            self.intervals.add(overhead.time_ns.saturating_sub(last_ns));
        }
        self.times_ns = Some((first_ns, overhead.time_ns.max(last_ns)));
        self.overheads.add(overhead.sum_ns());
        self.lockings.add(overhead.locking_ns);
        self.cleanings.add(overhead.cleaning_ns);
        self.counters.add(overhead.counters_ns);
        self.threads.add(overhead.threads_ns);
    }

    /// Writes the statistics. The profile's duration and the intervals are in milliseconds, all
    /// other durations in microseconds, as in Gecko. Unlike in Gecko, the percentage is a real
    /// percentage.
    fn write(&self, json: &mut JsonWriter<'_>) {
        let (first_ns, last_ns) = self.times_ns.unwrap_or_default();
        let profiled_ns = (last_ns - first_ns) as f64;
        json.object(|json| {
            json.key("profiledDuration").float(profiled_ns / NS_PER_MS);
            json.key("samplingCount").unsigned(self.overheads.count);
            json.key("overheadDurations")
                .float(self.overheads.sum as f64 / NS_PER_US);
            json.key("overheadPercentage")
                .float(self.overheads.sum as f64 / profiled_ns * 100.0);
            self.intervals.write(json, "Interval", NS_PER_MS);
            self.overheads.write(json, "Overhead", NS_PER_US);
            self.lockings.write(json, "Lockings", NS_PER_US);
            self.cleanings.write(json, "Cleaning", NS_PER_US);
            self.counters.write(json, "Counter", NS_PER_US);
            self.threads.write(json, "Thread", NS_PER_US);
        });
    }
}

const NS_PER_US: f64 = 1e3;
const NS_PER_MS: f64 = 1e6;
const COLUMNS: &[&str] = &[
    "time",
    "locking",
    "expiredMarkerCleaning",
    "counters",
    "threads",
];

/// The cost of each tick, and the statistics over all ticks.
#[derive(Debug, Default)]
pub(crate) struct Overheads {
    /// The ticks, encoded as in the buffer, but without the kind of the entry.
    rows: EntryWriter,
    statistics: OverheadStatistics,
}

impl Overheads {
    pub(crate) fn add(&mut self, overhead: &Overhead) {
        let Overhead {
            time_ns,
            locking_ns,
            counters_ns,
            threads_ns,
            cleaning_ns,
        } = *overhead;
        for number in [time_ns, locking_ns, counters_ns, threads_ns, cleaning_ns] {
            self.rows.number(number);
        }
        self.statistics.add(overhead);
    }

    /// Writes the cost of each tick, and the statistics.
    pub(crate) fn write(&self, json: &mut JsonWriter<'_>) {
        json.object(|json| {
            json.key("samples").object(|json| {
                write_schema(json, COLUMNS);
                json.key("data").array(|json| {
                    let mut rows = EntryReader::new(self.rows.bytes());
                    while let Some(overhead) = Overhead::read(&mut rows) {
                        write_row(json, &overhead);
                    }
                });
            });
            // A single tick has no interval.
            if self.statistics.intervals.count > 0 {
                self.statistics.write(json.key("statistics"));
            }
        });
    }
}

fn write_row(json: &mut JsonWriter<'_>, overhead: &Overhead) {
    let Overhead {
        time_ns,
        locking_ns,
        counters_ns,
        threads_ns,
        cleaning_ns,
    } = *overhead;
    json.array(|json| {
        json.time_ms(time_ns);
        for ns in [locking_ns, cleaning_ns, counters_ns, threads_ns] {
            json.float(ns as f64 / NS_PER_US);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{EntryHead, EntryKind};

    fn written(write: impl FnOnce(&mut JsonWriter<'_>)) -> serde_json::Value {
        let mut text = Vec::new();
        let mut json = JsonWriter::new(&mut text);
        write(&mut json);
        json.finish().expect("a vector never fails");
        serde_json::from_slice(&text).expect("JSON")
    }

    /// Returns a tick at `time_us` with the duration of each step in microseconds: modules and
    /// threads, counters, sampling, buffer.
    fn tick(time_us: u64, steps_us: [u64; 4]) -> Overhead {
        let mut entry = EntryHead::new(EntryKind::Overhead);
        entry.number(time_us * 1000);
        steps_us
            .into_iter()
            .for_each(|step_us| _ = entry.number(step_us * 1000));
        let mut reader = EntryReader::new(entry.bytes());
        assert_eq!(reader.kind(), Some(EntryKind::Overhead));
        Overhead::read(&mut reader).expect("five numbers")
    }

    #[test]
    fn each_step_is_written_to_its_column_and_statistics() {
        let ticks = [
            tick(10_000, [1, 20, 300, 4000]),
            tick(12_500, [5, 60, 700, 7414]),
        ];
        let row = written(|json| write_row(json, &ticks[0]));
        let columns: serde_json::Map<_, _> = COLUMNS
            .iter()
            .map(ToString::to_string)
            .zip(row.as_array().expect("a row").iter().cloned())
            .collect();
        let expected = serde_json::json!(
            {"time": 10, "locking": 1, "expiredMarkerCleaning": 4000, "counters": 20, "threads": 300}
        );
        assert_eq!(serde_json::Value::from(columns), expected);

        let mut statistics = OverheadStatistics::default();
        ticks.iter().for_each(|tick| statistics.add(tick));
        let expected = serde_json::json!({
            "profiledDuration": 2.5, "samplingCount": 2, "overheadDurations": 12_500, "overheadPercentage": 500,
            "meanInterval": 2.5, "minInterval": 2.5, "maxInterval": 2.5,
            "meanOverhead": 6250, "minOverhead": 4321, "maxOverhead": 8179,
            "meanLockings": 3, "minLockings": 1, "maxLockings": 5,
            "meanCleaning": 5707, "minCleaning": 4000, "maxCleaning": 7414,
            "meanCounter": 40, "minCounter": 20, "maxCounter": 60,
            "meanThread": 500, "minThread": 300, "maxThread": 700,
        });
        assert_eq!(written(|json| statistics.write(json)), expected);
    }
}
