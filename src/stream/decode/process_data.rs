//! What a profile has of the process as a whole: the values of counters, the pauses, the sampler's
//! overhead, the waits of async tasks, and the numbers of the buffer's entries.

use std::collections::HashMap;

use crate::buffer::{EntryKind, EntryReader, EntryWriter};
use crate::counters::CounterReading;
use crate::json::JsonWriter;
use crate::model::PausedRange;
use crate::state::{OpenPauses, OverheadStats};
use crate::stream::schema::write_table;
use crate::types::{ProfilerStats, TimeStamp};

/// The values of a counter: time in ns since the process began, value, and number of operations.
#[derive(Debug, Default)]
pub(crate) struct CounterRows {
    coded: EntryWriter,
    last: (u64, CounterReading),
    count: usize,
}

impl CounterRows {
    /// Returns how much memory the rows take if their number doubles.
    pub(super) fn growth_bytes(&self) -> usize {
        2 * self.coded.bytes().len()
    }

    pub(crate) fn push(&mut self, time_ns: u64, reading: CounterReading) {
        let (last_ns, last) = self.last;
        self.coded
            .signed(time_ns.wrapping_sub(last_ns) as i64)
            .signed(reading.count.wrapping_sub(last.count))
            .number(reading.operations.wrapping_sub(last.operations));
        self.last = (time_ns, reading);
        self.count += 1;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the times with the growth since the previous row. The first row has the value itself.
    pub(crate) fn deltas(&self) -> impl Iterator<Item = (u64, CounterReading)> {
        let mut coded = EntryReader::new(self.coded.bytes());
        let mut time_ns = 0u64;
        std::iter::from_fn(move || {
            time_ns = time_ns.wrapping_add(coded.signed()? as u64);
            let growth = CounterReading {
                count: coded.signed()?,
                operations: coded.number()?,
            };
            Some((time_ns, growth))
        })
    }
}

/// The reasons for a pause, as the format names them. It has no name for a pause of sampling alone,
/// during which markers are still recorded; `collecting` is the nearest.
const REASONS: [&str; 2] = ["profiler-paused", "collecting"];
/// Indices of these.
const PAUSED: usize = 0;
const COLLECTING: usize = 1;

/// The pauses of a session.
#[derive(Debug, Default)]
pub(crate) struct PausedRanges {
    /// A pause without an end lasts.
    pub(crate) ranges: Vec<PausedRange>,
    /// Starts of the pauses that no entry has ended so far, by their reason.
    unended: [Option<i64>; 2],
}

impl PausedRanges {
    /// Adds an entry of the buffer for the beginning or the end of a pause.
    pub(crate) fn add(&mut self, kind: EntryKind, time_ns: u64) {
        let (reason, begins) = match kind {
            EntryKind::Pause => (PAUSED, true),
            EntryKind::Resume => (PAUSED, false),
            EntryKind::PauseSampling => (COLLECTING, true),
            EntryKind::ResumeSampling => (COLLECTING, false),
            _ => return,
        };
        let time_ns = Some(i64::try_from(time_ns).unwrap_or(i64::MAX));
        if begins {
            // If an earlier pause has no end so far, that end is no longer in the buffer: drop the
            // pause.
            self.unended[reason] = time_ns;
        } else {
            // The beginning may no longer be in the buffer.
            let start_ns = self.unended[reason].take();
            self.push(start_ns, time_ns, reason);
        }
    }

    fn push(&mut self, start_ns: Option<i64>, end_ns: Option<i64>, reason: usize) {
        self.ranges.push(PausedRange {
            start_ns,
            end_ns,
            reason: REASONS[reason].into(),
        });
    }

    /// Adds the pauses that were open when the profile was taken, and drops other pauses without an
    /// end: the buffer no longer has their ends. Then sorts all pauses by their start. The starts
    /// of open pauses come from the session, because the buffer may not reach back to them.
    pub(crate) fn add_open(&mut self, open: OpenPauses, process_start: TimeStamp) {
        self.unended = [None; 2];
        for (since, reason) in [
            (open.paused_since, PAUSED),
            (open.sampling_paused_since, COLLECTING),
        ] {
            if let Some(since) = since {
                let start_ns = i64::try_from(since.since_ns(process_start));
                self.push(Some(start_ns.unwrap_or(i64::MAX)), None, reason);
            }
        }
        // Pauses whose start is lost come first.
        self.ranges.sort_by_key(|range| range.start_ns);
    }

    /// Removes the pauses that ended before `cut_ns`. A pause that began earlier and ended later
    /// keeps its end and loses its start.
    pub(crate) fn cut(&mut self, cut_ns: u64) {
        let is_kept = |&time_ns: &i64| time_ns.unsigned_abs() >= cut_ns;
        self.ranges
            .retain(|range| range.end_ns.as_ref().is_none_or(is_kept));
        for range in &mut self.ranges {
            range.start_ns = range.start_ns.filter(is_kept);
        }
    }

    pub(crate) fn write(&self, json: &mut JsonWriter<'_>) {
        let time = |json: &mut JsonWriter<'_>, time_ns: Option<i64>| match time_ns {
            Some(time_ns) => json.time_ms(time_ns.unsigned_abs()),
            None => json.null(),
        };
        json.array(|json| {
            for range in &self.ranges {
                json.object(|json| {
                    time(json.key("startTime"), range.start_ns);
                    time(json.key("endTime"), range.end_ns);
                    json.key("reason").string(&range.reason);
                });
            }
        });
    }
}

/// What the sampler costs: Gecko's `profilerOverhead`. The viewer shows its statistics with the
/// information about the profile.
///
/// The cost of each tick is there only if `MOZ_PROFILER_RECORD_OVERHEADS` is set. The sampler does not
/// record overheads during a pause.
#[derive(Debug, Default)]
pub(crate) struct Overheads {
    /// The ticks, encoded as in the buffer, but without the kind of the entry.
    rows: EntryWriter,
    /// Time of the last tick.
    last_ns: Option<u64>,
    statistics: OverheadStats,
}

/// The cost of one tick.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overhead {
    /// Time of the tick, in ns since the process began.
    pub(crate) time_ns: u64,
    /// Durations of the steps: lists of threads and modules, counters, threads, buffer.
    steps_ns: [u64; 4],
}

const NS_PER_US: f64 = 1e3;
/// The columns have the names that the viewer knows. `locking` is the time for updating the lists of
/// threads and modules, in which the sampler takes its locks. `expiredMarkerCleaning` is the time for
/// maintaining the buffer's chunks.
const COLUMNS: &[&str] = &[
    "time",
    "locking",
    "expiredMarkerCleaning",
    "counters",
    "threads",
];

impl Overhead {
    /// Reads an entry whose kind was already read.
    pub(crate) fn read(entry: &mut EntryReader<'_>) -> Option<Self> {
        let time_ns = entry.number()?;
        let mut steps_ns = [0; 4];
        for step_ns in &mut steps_ns {
            *step_ns = entry.number()?;
        }
        Some(Self { time_ns, steps_ns })
    }
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
    pub(crate) fn add(&mut self, &Overhead { time_ns, steps_ns }: &Overhead) {
        if self.rows.bytes().is_empty() {
            self.statistics = OverheadStats::default();
        }
        self.rows.number(time_ns);
        for step_ns in steps_ns {
            self.rows.number(step_ns);
        }
        let stats = &mut self.statistics;
        if let Some(last_ns) = self.last_ns {
            add(&mut stats.intervals, time_ns.saturating_sub(last_ns));
        }
        self.last_ns = self.last_ns.max(Some(time_ns));
        let [locking_ns, counters_ns, threads_ns, cleaning_ns] = steps_ns;
        let all_ns = steps_ns.into_iter().fold(0, u64::saturating_add);
        add(&mut stats.overheads, all_ns);
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

fn add(stats: &mut ProfilerStats, ns: u64) {
    let is_first = stats.count == 0;
    stats.count += 1;
    stats.sum_ns = stats.sum_ns.saturating_add(ns);
    stats.min_ns = if is_first { ns } else { stats.min_ns.min(ns) };
    stats.max_ns = stats.max_ns.max(ns);
}

fn write_row(json: &mut JsonWriter<'_>, overhead: &Overhead) {
    let [locking_ns, counters_ns, threads_ns, cleaning_ns] = overhead.steps_ns;
    json.array(|json| {
        json.time_ms(overhead.time_ns);
        for ns in [locking_ns, cleaning_ns, counters_ns, threads_ns] {
            json.float(ns as f64 / NS_PER_US);
        }
    });
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

const NS_PER_MS: u64 = 1_000_000;

/// What one entry says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TaskWaitEntry {
    /// Index of the stack in the profile.
    pub(crate) stack: u32,
    /// In ns since the process began.
    pub(crate) time_ns: u64,
    pub(crate) weight_ns: u64,
    /// Duration of the interval that ends at `time_ns`; 0 for none.
    pub(crate) interval_ns: u64,
    /// Number of the interval's context; 0 for none.
    pub(crate) context: u32,
}

/// A row of the track.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TaskWaitRow {
    pub(crate) stack: u32,
    pub(crate) time_ns: u64,
    /// At least 1.
    pub(crate) weight: u64,
}

/// Returns how many rows the track may have in a format without weights, in a profile that is to
/// have `max_rows` at most.
pub(crate) const fn max_wait_rows(max_rows: u64) -> u64 {
    const LEAST: u64 = 1_000;
    const MOST: u64 = 1 << 16;
    match max_rows {
        ..LEAST => LEAST,
        MOST.. => MOST,
        _ => max_rows,
    }
}

/// The waits of a profile.
#[derive(Debug)]
pub(crate) struct TaskWaits {
    entries: Vec<TaskWaitEntry>,
    /// Maximum number of rows in a format without weights.
    max_rows: u64,
}

impl Default for TaskWaits {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            max_rows: max_wait_rows(u64::MAX),
        }
    }
}

impl TaskWaits {
    pub(super) fn push(&mut self, entry: TaskWaitEntry) {
        self.entries.push(entry);
    }

    pub(super) fn sort(&mut self) {
        self.entries.sort_by_key(|entry| entry.time_ns);
    }

    /// Returns how much memory the entries take if their number doubles, or while they are sorted.
    pub(super) fn growth_bytes(&self) -> usize {
        2 * size_of_val(self.entries.as_slice())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the rows, whose weights are in ms. What is less than 1 ms adds to the stack's next
    /// row.
    pub(crate) fn rows(&self) -> impl Iterator<Item = TaskWaitRow> + '_ {
        self.rows_in(NS_PER_MS)
    }

    fn all_ms(&self) -> u64 {
        let weights = self.entries.iter().map(|entry| u128::from(entry.weight_ns));
        // Above the maximum only in a damaged buffer, where a sum of 2^20 entries fits, too.
        u64::try_from(weights.sum::<u128>() / u128::from(NS_PER_MS)).unwrap_or(u64::MAX)
    }

    /// Limits [`Self::equal_rows`] for a profile that is to have `max_rows` at most. Returns a
    /// bound for the number of rows and intervals.
    pub(super) fn limit_rows(&mut self, max_rows: u64) -> u64 {
        self.max_rows = max_wait_rows(max_rows);
        self.all_ms().min(self.max_rows) + self.intervals().count() as u64
    }

    /// Returns rows for a viewer that ignores weights, and the time that a row represents, in ms.
    /// The caller writes a row with the weight 3 three times. A stack with less time has no row.
    pub(crate) fn equal_rows(&self) -> (u64, impl Iterator<Item = TaskWaitRow> + '_) {
        let unit_ms = self.all_ms().div_ceil(self.max_rows.max(1)).max(1);
        (unit_ms, self.rows_in(unit_ms.saturating_mul(NS_PER_MS)))
    }

    fn rows_in(&self, unit_ns: u64) -> impl Iterator<Item = TaskWaitRow> + '_ {
        // What each stack has left of a unit.
        let mut rests: HashMap<u32, u64> = HashMap::new();
        self.entries.iter().filter_map(move |entry| {
            let rest = rests.entry(entry.stack).or_default();
            let sum_ns = rest.saturating_add(entry.weight_ns);
            *rest = sum_ns % unit_ns;
            let weight = sum_ns / unit_ns;
            (weight > 0).then_some(TaskWaitRow {
                stack: entry.stack,
                time_ns: entry.time_ns,
                weight,
            })
        })
    }

    /// Returns the entries with an interval.
    pub(crate) fn intervals(&self) -> impl Iterator<Item = &TaskWaitEntry> {
        self.entries.iter().filter(|entry| entry.interval_ns > 0)
    }
}

macro_rules! classes {
    ($($(#[$doc:meta])* $class:ident $name:literal,)+) => {
        /// The class of an entry in `profilingLog`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum EntryClass {
            $($(#[$doc])* $class,)+
        }

        const CLASS_NAMES: &[&str] = &[$($name,)+];
    };
}

classes! {
    /// A sample that defines frames or stacks that its chunk did not have yet.
    Sample "sample",
    /// A sample whose stack its chunk already has.
    RepeatedSample "repeated_sample",
    /// A sample with the same stack as the previous sample of its thread.
    SameSample "same_sample",
    /// A sample of an idle thread, together with its repeats.
    Run "run",
    Marker "marker",
    Backtrace "backtrace",
    Counter "counter",
    Overhead "overhead",
    EventProbe "event_probe",
    Pause "pause",
    Modules "modules",
    Wait "wait",
    TickGap "tick_gap",
}

/// Number of entries and bytes by class.
#[derive(Clone, Default, Debug)]
pub(crate) struct EntryCounts {
    counts: [(u64, u64); CLASS_NAMES.len()],
    /// Number of entries that could not be read.
    pub(crate) malformed: u64,
    /// Number of samples and markers that belong to no thread of the profile.
    pub(crate) without_thread: u64,
}

impl EntryCounts {
    pub(crate) fn add(&mut self, class: EntryClass, bytes: u64) {
        let (count, sum) = &mut self.counts[class as usize];
        *count += 1;
        *sum += bytes;
    }

    pub(crate) fn count_of(&self, class: EntryClass) -> u64 {
        self.counts[class as usize].0
    }

    pub(crate) fn write(&self, json: &mut JsonWriter<'_>) {
        json.object(|json| {
            for (name, (count, bytes)) in CLASS_NAMES.iter().zip(&self.counts) {
                json.key(name).object(|json| {
                    json.key("count").unsigned(*count);
                    json.key("bytes").unsigned(*bytes);
                });
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{EntryHead, EntryKind};
    use crate::state::SamplerOverheads;

    #[test]
    fn counter_rows_return_the_growth() {
        let mut counter = CounterRows::default();
        assert!(counter.is_empty());
        [(10, 500), (20, 700), (30, 650)]
            .iter()
            .for_each(|&(time, count)| {
                let operations = time / 10;
                counter.push(time, CounterReading { count, operations });
            });
        let growth =
            |(time, growth): (u64, CounterReading)| (time, growth.count, growth.operations);
        assert_eq!(
            counter.deltas().map(growth).collect::<Vec<_>>(),
            [(10, 500, 1), (20, 200, 1), (30, -50, 1)]
        );
    }

    const PROCESS_START: TimeStamp = TimeStamp(77);

    fn at(ms: u64) -> Option<TimeStamp> {
        Some(PROCESS_START.plus_ns(ms * 1_000_000))
    }

    fn written(entries: &[(EntryKind, u64)], open: OpenPauses) -> String {
        written_since(0, entries, open)
    }

    fn written_since(cut_ms: u64, entries: &[(EntryKind, u64)], open: OpenPauses) -> String {
        let mut ranges = PausedRanges::default();
        entries
            .iter()
            .for_each(|&(kind, ms)| ranges.add(kind, ms * 1_000_000));
        ranges.add_open(open, PROCESS_START);
        ranges.cut(cut_ms * 1_000_000);
        let mut text = Vec::new();
        let mut json = JsonWriter::new(&mut text);
        ranges.write(&mut json);
        json.finish().expect("a vector never fails");
        String::from_utf8(text).expect("UTF-8")
    }

    #[test]
    fn pauses_of_both_kinds_overlap_and_may_lack_an_end() {
        use EntryKind::{Pause, PauseSampling, Resume, ResumeSampling};
        let none = OpenPauses::default();
        assert_eq!(written(&[], none), "[]");
        let paused = OpenPauses {
            paused_since: at(5),
            ..none
        };
        assert_eq!(
            written(
                &[
                    (PauseSampling, 1),
                    (Pause, 2),
                    (ResumeSampling, 3),
                    (Resume, 4),
                    (Pause, 5)
                ],
                paused
            ),
            r#"[{"startTime":1,"endTime":3,"reason":"collecting"},{"startTime":2,"endTime":4,"reason":"profiler-paused"},{"startTime":5,"endTime":null,"reason":"profiler-paused"}]"#
        );
        assert_eq!(
            written(&[(ResumeSampling, 3)], paused),
            r#"[{"startTime":null,"endTime":3,"reason":"collecting"},{"startTime":5,"endTime":null,"reason":"profiler-paused"}]"#
        );
        // The ends of these pauses are no longer in the buffer.
        assert_eq!(written(&[(Pause, 2)], none), "[]");
        assert_eq!(
            written(&[(Pause, 2), (Pause, 3), (Resume, 4)], none),
            r#"[{"startTime":3,"endTime":4,"reason":"profiler-paused"}]"#
        );
        // Both pauses began before the oldest entry; the pause of sampling began first.
        let both = OpenPauses {
            sampling_paused_since: at(4),
            ..paused
        };
        assert_eq!(
            written(&[], both),
            r#"[{"startTime":4,"endTime":null,"reason":"collecting"},{"startTime":5,"endTime":null,"reason":"profiler-paused"}]"#
        );
        assert_eq!(
            written(&[(PauseSampling, 6), (ResumeSampling, 7)], paused),
            r#"[{"startTime":5,"endTime":null,"reason":"profiler-paused"},{"startTime":6,"endTime":7,"reason":"collecting"}]"#
        );
        assert_eq!(
            written_since(5, &[], both),
            r#"[{"startTime":null,"endTime":null,"reason":"collecting"},{"startTime":5,"endTime":null,"reason":"profiler-paused"}]"#
        );
        assert_eq!(
            written_since(
                5,
                &[(Pause, 1), (Resume, 3), (Pause, 4), (Resume, 6), (Pause, 7)],
                OpenPauses {
                    paused_since: at(7),
                    ..none
                }
            ),
            r#"[{"startTime":null,"endTime":6,"reason":"profiler-paused"},{"startTime":7,"endTime":null,"reason":"profiler-paused"}]"#
        );
    }

    fn json_of(write: impl FnOnce(&mut JsonWriter<'_>)) -> serde_json::Value {
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
        let row = json_of(|json| write_row(json, &ticks[0]));
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
        assert_eq!(json_of(|json| write_statistics(json, statistics)), expected);

        // A session that has not recorded each tick gives equal statistics.
        let stats = SamplerOverheads::default();
        stats.intervals.add(2_500_000);
        for tick in &ticks {
            let [locking_ns, counters_ns, threads_ns, cleaning_ns] = tick.steps_ns;
            stats.overheads.add(tick.steps_ns.iter().sum());
            stats.lockings.add(locking_ns);
            stats.cleanings.add(cleaning_ns);
            stats.counters.add(counters_ns);
            stats.threads.add(threads_ns);
        }
        let of_session = Overheads::of_session(&stats.read());
        let written = json_of(|json| of_session.write(json));
        assert_eq!(written["statistics"], expected);
        assert_eq!(written["samples"]["data"], serde_json::json!([]));
    }

    fn waits(entries: &[(u32, u64, u64)]) -> TaskWaits {
        let mut waits = TaskWaits::default();
        for &(stack, time_ns, weight_ns) in entries {
            waits.push(TaskWaitEntry {
                stack,
                time_ns,
                weight_ns,
                interval_ns: 0,
                context: 0,
            });
        }
        waits.sort();
        waits
    }

    #[test]
    fn fractions_of_a_millisecond_add_to_the_next_row_of_the_stack() {
        let waits = waits(&[(1, 30, 600_000), (1, 10, 1_600_000), (2, 20, 600_000)]);
        let rows: Vec<_> = waits
            .rows()
            .map(|row| (row.stack, row.time_ns, row.weight))
            .collect();
        assert_eq!(rows, [(1, 10, 1), (1, 30, 1)]);
    }

    #[test]
    fn equal_rows_are_at_most_so_many() {
        let entries: Vec<_> = (0..1000).map(|at| (at % 7, at.into(), 9_000_000)).collect();
        let mut waits = waits(&entries);
        let (unit_ms, rows) = waits.equal_rows();
        assert_eq!((unit_ms, rows.map(|row| row.weight).sum()), (1, 9_000));
        assert_eq!(waits.limit_rows(10), 1_000);
        let (unit_ms, rows) = waits.equal_rows();
        assert_eq!(unit_ms, 9);
        let count: u64 = rows.map(|row| row.weight).sum();
        assert!((993..=1_000).contains(&count), "{count}");
    }
}
