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
use crate::stream::schema::write_table;
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

fn add(stats: &mut ProfilerStats, ns: u64) {
    let is_first = stats.count == 0;
    stats.count += 1;
    stats.sum_ns = stats.sum_ns.saturating_add(ns);
    stats.min_ns = if is_first { ns } else { stats.min_ns.min(ns) };
    stats.max_ns = stats.max_ns.max(ns);
}

/// Writes the statistics in the units in which the viewer shows them: all durations in
/// microseconds, and the percentage as a fraction. Gecko writes some of them in other units.
fn write_statistics(json: &mut JsonWriter<'_>, stats: &OverheadStats) {
    let profiled_ns = stats.intervals.sum_ns as f64;
    let overhead_ns = stats.overheads.sum_ns as f64;
    json.object(|json| {
        json.key("profiledDuration").float(profiled_ns / NS_PER_US);
        json.key("samplingCount").unsigned(stats.overheads.count);
        json.key("overheadDurations").float(overhead_ns / NS_PER_US);
        json.key("overheadPercentage")
            .float(overhead_ns / profiled_ns);
        for (name, stats) in [
            ("Interval", stats.intervals),
            ("Overhead", stats.overheads),
            ("Lockings", stats.lockings),
            ("Cleaning", stats.cleanings),
            ("Counter", stats.counters),
            ("Thread", stats.threads),
        ] {
            let mean_ns = stats.sum_ns as f64 / stats.count.max(1) as f64;
            for (prefix, ns) in [
                ("mean", mean_ns),
                ("min", stats.min_ns as f64),
                ("max", stats.max_ns as f64),
            ] {
                json.key(&format!("{prefix}{name}")).float(ns / NS_PER_US);
            }
        }
    });
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
#[derive(Debug, Default)]
pub(crate) struct Overheads {
    /// The ticks, encoded as in the buffer, but without the kind of the entry.
    rows: EntryWriter,
    /// Time of the last tick.
    last_ns: Option<u64>,
    statistics: OverheadStats,
}

impl Overheads {
    /// Returns the statistics of a session, without its ticks.
    pub(crate) fn of_session(statistics: &OverheadStats) -> Self {
        Self {
            statistics: *statistics,
            ..Self::default()
        }
    }

    /// Adds a tick that the session has recorded. The statistics are then those of such ticks.
    pub(crate) fn add(&mut self, overhead: &Overhead) {
        if self.rows.bytes().is_empty() {
            self.statistics = OverheadStats::default();
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
        let stats = &mut self.statistics;
        if let Some(last_ns) = self.last_ns {
            add(&mut stats.intervals, time_ns.saturating_sub(last_ns));
        }
        self.last_ns = self.last_ns.max(Some(time_ns));
        add(&mut stats.overheads, overhead.sum_ns());
        add(&mut stats.lockings, locking_ns);
        add(&mut stats.cleanings, cleaning_ns);
        add(&mut stats.counters, counters_ns);
        add(&mut stats.threads, threads_ns);
    }

    /// Writes the cost of each tick, and the statistics.
    pub(crate) fn write(&self, json: &mut JsonWriter<'_>) {
        json.object(|json| {
            write_table(json.key("samples"), COLUMNS, |json| {
                let mut rows = EntryReader::new(self.rows.bytes());
                while let Some(overhead) = Overhead::read(&mut rows) {
                    write_row(json, &overhead);
                }
            });
            // A single tick has no interval.
            if self.statistics.intervals.count > 0 {
                write_statistics(json.key("statistics"), &self.statistics);
            }
        });
    }
}

fn write_row(json: &mut JsonWriter<'_>, overhead: &Overhead) {
    json.array(|json| {
        json.time_ms(overhead.time_ns);
        for ns in [
            overhead.locking_ns,
            overhead.cleaning_ns,
            overhead.counters_ns,
            overhead.threads_ns,
        ] {
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

        let mut of_ticks = Overheads::default();
        ticks.iter().for_each(|tick| of_ticks.add(tick));
        let expected = serde_json::json!({
            "profiledDuration": 2500, "samplingCount": 2, "overheadDurations": 12_500, "overheadPercentage": 5,
            "meanInterval": 2500, "minInterval": 2500, "maxInterval": 2500,
            "meanOverhead": 6250, "minOverhead": 4321, "maxOverhead": 8179,
            "meanLockings": 3, "minLockings": 1, "maxLockings": 5,
            "meanCleaning": 5707, "minCleaning": 4000, "maxCleaning": 7414,
            "meanCounter": 40, "minCounter": 20, "maxCounter": 60,
            "meanThread": 500, "minThread": 300, "maxThread": 700,
        });
        let statistics = &of_ticks.statistics;
        assert_eq!(written(|json| write_statistics(json, statistics)), expected);

        // A session that has not recorded each tick gives equal statistics.
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
