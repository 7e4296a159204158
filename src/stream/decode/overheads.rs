//! Writes what the sampler costs: Gecko's `profilerOverhead`. The viewer shows its statistics with
//! the information about the profile. The cost of each tick is there only if
//! `MOZ_PROFILER_RECORD_OVERHEADS` is set.
//!
//! The columns have the names that the viewer knows. `locking` is the time for updating the lists
//! of threads and modules, in which the sampler takes its locks. `expiredMarkerCleaning` is the
//! time for maintaining the buffer's chunks. The sampler does not record overheads during a pause.

use crate::buffer::{EntryReader, EntryWriter};
use crate::json::JsonWriter;
use crate::state::OverheadStats;
use crate::stream::schema::write_schema;
use crate::types::ProfilerStats;

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

impl From<ProfilerStats> for Spread {
    fn from(stats: ProfilerStats) -> Self {
        Self {
            count: stats.count,
            sum: stats.sum_ns,
            min: stats.min_ns,
            max: stats.max_ns,
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

    /// Writes the mean, the minimum and the maximum, in microseconds.
    fn write(&self, json: &mut JsonWriter<'_>, name: &str) {
        let mean = self.sum as f64 / self.count.max(1) as f64;
        let values = [
            ("mean", mean),
            ("min", self.min as f64),
            ("max", self.max as f64),
        ];
        for (prefix, ns) in values {
            json.key(&format!("{prefix}{name}")).float(ns / NS_PER_US);
        }
    }
}

/// Statistics over all ticks.
#[derive(Clone, Debug, Default)]
struct OverheadStatistics {
    /// Time of the last tick.
    last_ns: Option<u64>,
    intervals: Spread,
    overheads: Spread,
    lockings: Spread,
    cleanings: Spread,
    counters: Spread,
    threads: Spread,
}

impl OverheadStatistics {
    fn add(&mut self, overhead: &Overhead) {
        if let Some(last_ns) = self.last_ns {
            self.intervals.add(overhead.time_ns.saturating_sub(last_ns));
        }
        self.last_ns = self.last_ns.max(Some(overhead.time_ns));
        self.overheads.add(overhead.sum_ns());
        self.lockings.add(overhead.locking_ns);
        self.cleanings.add(overhead.cleaning_ns);
        self.counters.add(overhead.counters_ns);
        self.threads.add(overhead.threads_ns);
    }

    /// Writes the statistics in the units in which the viewer shows them: all durations in
    /// microseconds, and the percentage as a fraction. Gecko writes some of them in other units.
    fn write(&self, json: &mut JsonWriter<'_>) {
        let profiled_ns = self.intervals.sum as f64;
        json.object(|json| {
            json.key("profiledDuration").float(profiled_ns / NS_PER_US);
            json.key("samplingCount").unsigned(self.overheads.count);
            json.key("overheadDurations")
                .float(self.overheads.sum as f64 / NS_PER_US);
            json.key("overheadPercentage")
                .float(self.overheads.sum as f64 / profiled_ns);
            self.intervals.write(json, "Interval");
            self.overheads.write(json, "Overhead");
            self.lockings.write(json, "Lockings");
            self.cleanings.write(json, "Cleaning");
            self.counters.write(json, "Counter");
            self.threads.write(json, "Thread");
        });
    }
}

const NS_PER_US: f64 = 1e3;
const COLUMNS: &[&str] = &[
    "time",
    "locking",
    "expiredMarkerCleaning",
    "counters",
    "threads",
];

/// The cost of each tick, if the session recorded it, and the statistics over all ticks.
#[derive(Debug)]
pub(crate) struct Overheads {
    /// The ticks, encoded as in the buffer, but without the kind of the entry.
    rows: EntryWriter,
    statistics: OverheadStatistics,
}

impl Overheads {
    /// Returns the statistics of a session, without its ticks.
    pub(crate) fn of_session(stats: &OverheadStats) -> Self {
        let statistics = OverheadStatistics {
            last_ns: None,
            intervals: stats.intervals.into(),
            overheads: stats.overheads.into(),
            lockings: stats.lockings.into(),
            cleanings: stats.cleanings.into(),
            counters: stats.counters.into(),
            threads: stats.threads.into(),
        };
        Self {
            rows: EntryWriter::default(),
            statistics,
        }
    }

    /// Adds a tick that the session has recorded. The statistics are then those of such ticks.
    pub(crate) fn add(&mut self, overhead: &Overhead) {
        if self.rows.bytes().is_empty() {
            self.statistics = OverheadStatistics::default();
        }
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
    use crate::state::SamplerOverheads;

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
            "profiledDuration": 2500, "samplingCount": 2, "overheadDurations": 12_500, "overheadPercentage": 5,
            "meanInterval": 2500, "minInterval": 2500, "maxInterval": 2500,
            "meanOverhead": 6250, "minOverhead": 4321, "maxOverhead": 8179,
            "meanLockings": 3, "minLockings": 1, "maxLockings": 5,
            "meanCleaning": 5707, "minCleaning": 4000, "maxCleaning": 7414,
            "meanCounter": 40, "minCounter": 20, "maxCounter": 60,
            "meanThread": 500, "minThread": 300, "maxThread": 700,
        });
        assert_eq!(written(|json| statistics.write(json)), expected);

        // The same from a session that has not recorded each tick.
        let stats = SamplerOverheads::default();
        stats.intervals.add(2_500_000);
        for tick in &ticks {
            stats.overheads.add(tick.sum_ns());
            stats.lockings.add(tick.locking_ns);
            stats.cleanings.add(tick.cleaning_ns);
            stats.counters.add(tick.counters_ns);
            stats.threads.add(tick.threads_ns);
        }
        let of_session = Overheads::of_session(&stats.read());
        let written = written(|json| of_session.write(json));
        assert_eq!(written["statistics"], expected);
        assert_eq!(written["samples"]["data"], serde_json::json!([]));
    }
}
