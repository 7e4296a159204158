//! Stores samples between decoding and printing, in a few bytes each, and returns those to print.

use crate::buffer::{EntryReader, EntryWriter, Repeats, unzigzag, zigzag};
use crate::stream::decode::tick_gaps::{RunTimes, TickGaps};

/// The state of the thread's event loop at a sample.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum RowEvent {
    /// The thread has not reported any event.
    #[default]
    Unknown,
    /// No event was running.
    Idle,
    /// An event was running that was queued `ns` nanoseconds before the sample, or after it if `ns`
    /// is negative.
    Running { ns: i64 },
}

impl RowEvent {
    /// Decodes the event field of a sample, if the sample has one.
    pub(crate) fn from_field(field: Option<u64>) -> Self {
        match field {
            None => Self::Unknown,
            Some(0) => Self::Idle,
            Some(field) => Self::Running {
                ns: unzigzag(field - 1),
            },
        }
    }

    /// Returns the state of the same event `later_ns` nanoseconds later.
    fn later_by(self, later_ns: u64) -> Self {
        match self {
            Self::Running { ns } => Self::Running {
                ns: ns.saturating_add_unsigned(later_ns),
            },
            Self::Unknown | Self::Idle => self,
        }
    }

    /// Returns the event delay: the time since the running event was queued, or 0 if the event loop
    /// is idle.
    pub(crate) fn delay_ns(self) -> Option<u64> {
        match self {
            Self::Unknown => None,
            Self::Idle => Some(0),
            Self::Running { ns } => Some(ns.max(0) as u64),
        }
    }

    fn to_number(self) -> u64 {
        match self {
            Self::Unknown => 0,
            Self::Idle => 1,
            Self::Running { ns } => zigzag(ns).saturating_add(2),
        }
    }

    fn from_number(number: u64) -> Self {
        Self::from_field(number.checked_sub(1))
    }
}

/// A sample of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SampleRow {
    /// Index of the stack in the process.
    pub(crate) stack: u32,
    /// Time of the sample, in ns since the process began.
    pub(crate) time_ns: u64,
    pub(crate) cpu_delta_ns: Option<u64>,
    pub(crate) event: RowEvent,
    /// Number of ticks that the sample counts for: its own, and those that the sampler left out. The
    /// sampler counts those since the thread's previous sample, and the readers spread them over the
    /// time after this one: ticks are left out evenly, so both are as many. The repeats of the sample
    /// are further ticks.
    pub(crate) weight: u64,
}

impl SampleRow {
    /// Returns a sample without an event, which counts for one tick.
    fn plain(stack: u32, time_ns: u64, cpu_delta_ns: Option<u64>) -> Self {
        Self {
            stack,
            time_ns,
            cpu_delta_ns,
            event: RowEvent::Unknown,
            weight: 1,
        }
    }

    /// Returns the repeat of this sample `later_ns` nanoseconds later. The thread has not run in
    /// between.
    fn later_by(self, later_ns: u64) -> Self {
        Self {
            cpu_delta_ns: self.cpu_delta_ns.map(|_| 0),
            weight: 1,
            ..self.moved_by(later_ns)
        }
    }

    /// Returns this sample with a time `later_ns` nanoseconds later.
    fn moved_by(self, later_ns: u64) -> Self {
        Self {
            time_ns: self.time_ns.saturating_add(later_ns),
            event: self.event.later_by(later_ns),
            ..self
        }
    }
}

/// A sample and its repeats, with their times.
struct Run<'a> {
    sample: SampleRow,
    times: RunTimes<'a>,
}

impl<'a> Run<'a> {
    fn new(sample: SampleRow, repeats: Repeats, gaps: &'a TickGaps) -> Self {
        let times = RunTimes::new(sample.time_ns, repeats, gaps);
        Self { sample, times }
    }

    fn first(&self) -> SampleRow {
        self.sample.moved_by(self.times.of(0) - self.sample.time_ns)
    }

    /// Returns the repeat with this number, or a repeat at the time of the sample itself for 0.
    fn repeat(&self, number: u64) -> SampleRow {
        let later_ns = self.times.of(number) - self.sample.time_ns;
        self.sample.later_by(later_ns)
    }
}

/// Returns the part of a sample and its repeats that is not earlier than `cut_ns`.
pub(crate) fn cut_before(
    row: SampleRow,
    repeats: Repeats,
    cut_ns: u64,
    gaps: &TickGaps,
) -> Option<(SampleRow, Repeats)> {
    if row.time_ns >= cut_ns {
        return Some((row, repeats));
    }
    let run = Run::new(row, repeats, gaps);
    let first = run.times.first_from(cut_ns)?;
    let kept = match first {
        0 => run.first(),
        _ => run.repeat(first),
    };
    let left = Repeats {
        count: repeats.count - first,
        span_ns: repeats.span_ns - (kept.time_ns - row.time_ns),
        first_tick: repeats.first_tick.map(|tick| tick.saturating_add(first)),
    };
    Some((kept, left))
}

/// A sample and its repeats, in the short form that suffices for most samples.
#[derive(Clone, Copy, Debug)]
struct PackedRow {
    stack: u32,
    /// Time since the previous row, in ns.
    later_ns: u32,
    /// CPU time in ns plus one; 0 if it was not recorded. If it is `RARE`, all fields but the stack
    /// are in `SampleRows::rare` instead.
    cpu: u32,
}

const RARE: u32 = u32::MAX;

/// Maximum distance of two entries of one run, in times between two ticks: a tick more or less.
const MAX_SPACINGS_IN_RUN: u64 = 3;

/// The samples of a thread, in order of time.
#[derive(Debug, Default)]
pub(crate) struct SampleRows {
    packed: Vec<PackedRow>,
    /// For each `RARE` row: time, CPU time, event, weight, and the number, the time span and the first
    /// tick of its repeats.
    rare: EntryWriter,
    rows: u64,
    /// Number of rows in which the thread has not run since the previous row.
    pub(super) idle_rows: u64,
    /// Number of ticks without samples that the rows represent: the sum of each weight minus one.
    pub(crate) left_out_ticks: u64,
    /// Number of idle rows that are kept at a long stride: the first and the last of each run.
    pub(super) least_idle_rows: u64,
    /// Number of rows in which the thread may have run since the previous row.
    running_rows: u64,
    has_running_event: bool,
    last_time_ns: u64,
    kept: KeptRows,
}

/// Which idle rows are not left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum KeptRows {
    /// The first one of each run, each one after it at this stride, and the last one.
    AtStride(u64),
    /// The first and the last one of each sleep. A sleep is one or more runs that follow one another.
    EndsOfSleeps,
}

impl Default for KeptRows {
    fn default() -> Self {
        Self::AtStride(1)
    }
}

impl SampleRows {
    /// Returns how much memory the rows take if their number doubles.
    pub(super) fn growth_bytes(&self) -> usize {
        2 * (size_of_val(self.packed.as_slice()) + self.rare.bytes().len())
    }

    /// Adds a sample without an event and without repeats, which counts for one tick.
    #[inline(always)]
    pub(crate) fn push_plain(&mut self, stack: u32, time_ns: u64, cpu_delta_ns: Option<u64>) {
        // In a damaged buffer, time may go back, and the difference wraps. It is then either too
        // large for the short form, or wraps back when `Unpacked` adds it.
        let later_ns = time_ns.wrapping_sub(self.last_time_ns);
        let cpu = cpu_delta_ns.map_or(0, |ns| ns.saturating_add(1));
        if later_ns > u32::MAX.into() || cpu >= RARE.into() {
            let row = SampleRow::plain(stack, time_ns, cpu_delta_ns);
            return self.push_rare(row, Repeats::default());
        }
        self.packed.push(PackedRow {
            stack,
            later_ns: later_ns as u32,
            cpu: cpu as u32,
        });
        self.last_time_ns = time_ns;
        self.running_rows += u64::from(cpu_delta_ns != Some(0));
        self.rows = self.rows.saturating_add(1);
    }

    pub(crate) fn push(&mut self, row: SampleRow, repeats: Repeats) {
        if row.event == RowEvent::Unknown && row.weight == 1 && repeats.count == 0 {
            self.push_plain(row.stack, row.time_ns, row.cpu_delta_ns);
        } else {
            self.push_rare(row, repeats);
        }
    }

    #[cold]
    fn push_rare(&mut self, row: SampleRow, repeats: Repeats) {
        self.rare
            .number(row.time_ns)
            .number(row.cpu_delta_ns.map_or(0, |cpu| cpu.saturating_add(1)))
            .number(row.event.to_number())
            .number(row.weight)
            .number(repeats.count)
            .number(repeats.span_ns)
            .number(repeats.first_tick.map_or(0, |tick| tick.saturating_add(1)));
        self.packed.push(PackedRow {
            stack: row.stack,
            later_ns: 0,
            cpu: RARE,
        });
        self.least_idle_rows = (self.least_idle_rows).saturating_add(repeats.count.min(2));
        self.running_rows += u64::from(row.cpu_delta_ns != Some(0));
        self.has_running_event |= matches!(row.event, RowEvent::Running { .. });
        self.last_time_ns = row.time_ns;
        let left_out = row.weight.saturating_sub(1);
        self.left_out_ticks = self.left_out_ticks.saturating_add(left_out);
        self.idle_rows = self.idle_rows.saturating_add(repeats.count);
        self.rows = self.rows.saturating_add(repeats.count).saturating_add(1);
    }

    /// Returns the number of all rows, both kept and left out.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns whether the thread slept nearly all the time. False if it ran an event in the meantime:
    /// each row has another delay of that.
    pub(crate) fn mostly_sleeps(&self) -> bool {
        /// Minimum number of rows for each one in which the thread ran, after the first: a thread that
        /// runs more often keeps its rows.
        const ROWS_PER_RUNNING_ROW: u64 = 128;
        let running = self.running_rows.saturating_sub(1);
        !self.has_running_event && running.saturating_mul(ROWS_PER_RUNNING_ROW) <= self.rows
    }

    /// Keeps the first idle row of each run, every `stride`-th one after it, and the last one.
    pub(crate) fn thin_idle_rows(&mut self, stride: u64) {
        self.kept = KeptRows::AtStride(stride.max(1));
    }

    /// Keeps the first and the last idle row of each sleep: runs that follow one another count as one.
    pub(crate) fn keep_ends_of_sleeps(&mut self) {
        self.kept = KeptRows::EndsOfSleeps;
    }

    /// Returns the number of rows that are not left out. `gaps` are those of the session's ticks.
    pub(crate) fn kept_rows(&self, gaps: &TickGaps) -> u64 {
        match self.kept {
            KeptRows::AtStride(1) => self.rows,
            _ => self.iter(gaps).count() as u64,
        }
    }

    /// Returns the stacks of the rows.
    pub(crate) fn stacks(&self) -> impl Iterator<Item = u32> {
        self.packed.iter().map(|row| row.stack)
    }

    /// Returns whether the thread slept throughout, and has no event loop.
    pub(crate) fn slept(&self) -> bool {
        /// A thread uses some when it is sampled.
        const MAX_ASLEEP_CPU_NS: u64 = 100_000;
        let mut cpu_ns = 0u64;
        self.unpacked().all(|(row, _)| {
            cpu_ns = cpu_ns.saturating_add(row.cpu_delta_ns.unwrap_or(u64::MAX));
            cpu_ns <= MAX_ASLEEP_CPU_NS && row.event == RowEvent::Unknown
        })
    }

    fn unpacked(&self) -> Unpacked<'_> {
        Unpacked {
            packed: self.packed.iter(),
            rare: EntryReader::new(self.rare.bytes()),
            time_ns: 0,
        }
    }

    /// Returns the stack, the CPU time in ns and the weight of each row, including the rows that are left
    /// out.
    pub(crate) fn cpu_times(&self) -> impl Iterator<Item = (u32, u64, u64)> + '_ {
        // The repeats of a row are idle.
        let rows = self.unpacked();
        rows.filter_map(|(row, _)| Some((row.stack, row.cpu_delta_ns?, row.weight)))
    }

    /// Returns the rows that are not left out. `gaps` are those of the session's ticks.
    pub(crate) fn iter<'a>(&'a self, gaps: &'a TickGaps) -> Rows<'a> {
        Rows {
            unpacked: self.unpacked(),
            kept: self.kept,
            gaps,
            run: None,
            next: None,
        }
    }
}

/// Iterates over the samples, each with its repeats.
struct Unpacked<'a> {
    packed: std::slice::Iter<'a, PackedRow>,
    rare: EntryReader<'a>,
    time_ns: u64,
}

impl Unpacked<'_> {
    #[cold]
    fn rare(&mut self, stack: u32) -> (SampleRow, Repeats) {
        // Every rare row has all seven numbers.
        let mut number = || self.rare.number().unwrap_or_default();
        let time_ns = number();
        let cpu_delta_ns = number().checked_sub(1);
        let event = RowEvent::from_number(number());
        let weight = number();
        let repeats = Repeats {
            count: number(),
            span_ns: number(),
            first_tick: number().checked_sub(1),
        };
        self.time_ns = time_ns;
        (
            SampleRow {
                stack,
                time_ns,
                cpu_delta_ns,
                event,
                weight,
            },
            repeats,
        )
    }
}

impl Iterator for Unpacked<'_> {
    type Item = (SampleRow, Repeats);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let &PackedRow {
            stack,
            later_ns,
            cpu,
        } = self.packed.next()?;
        if cpu == RARE {
            return Some(self.rare(stack));
        }
        self.time_ns = self.time_ns.wrapping_add(later_ns.into());
        let cpu_delta_ns = cpu.checked_sub(1).map(u64::from);
        let row = SampleRow::plain(stack, self.time_ns, cpu_delta_ns);
        Some((row, Repeats::default()))
    }
}

/// Iterates over the rows of a thread.
pub(crate) struct Rows<'a> {
    unpacked: Unpacked<'a>,
    kept: KeptRows,
    gaps: &'a TickGaps,
    run: Option<RunCursor<'a>>,
    /// The sample that was read to find that it does not continue the last run.
    next: Option<(SampleRow, Repeats)>,
}

/// The remaining rows of a run after its first row.
enum RunCursor<'a> {
    /// The rows of one entry.
    Entry {
        run: Run<'a>,
        /// Number of the next repeat to return, from 1 on.
        next: u64,
        stride: u64,
    },
    /// The first and the last row of the repeats of one or more entries; the first until it is
    /// returned.
    Ends {
        first: Option<SampleRow>,
        last: SampleRow,
        /// Number of ticks of all repeats, at least 1.
        ticks: u64,
    },
}

impl<'a> Rows<'a> {
    #[cold]
    fn next_of_run(&mut self) -> Option<(SampleRow, u64)> {
        match self.run.as_mut()? {
            RunCursor::Ends { first, last, ticks } => {
                if let Some(first) = first.take() {
                    *ticks -= 1;
                    return Some((first, std::mem::replace(ticks, 1)));
                }
                let row = (*last, *ticks);
                self.run = None;
                Some(row)
            }
            RunCursor::Entry { run, next, stride } => {
                let (number, count) = (*next, run.times.count());
                let row = run.repeat(number);
                if number == count {
                    self.run = None;
                    return Some((row, 1));
                }
                *next = number.saturating_add(*stride).min(count);
                Some((row, *next - number))
            }
        }
    }

    /// Begins a run, and returns its first row.
    #[cold]
    fn begin_run(&mut self, sample: SampleRow, repeats: Repeats, stride: u64) -> SampleRow {
        let run = Run::new(sample, repeats, self.gaps);
        let first = run.first();
        let next = 1;
        self.run = Some(RunCursor::Entry { run, next, stride });
        first
    }

    /// Returns the next row of a thread whose sleeps keep their ends only, and its count.
    #[cold]
    fn next_sleep(&mut self) -> Option<(SampleRow, u64)> {
        let (sample, repeats) = self.next.take().or_else(|| self.unpacked.next())?;
        let run = Run::new(sample, repeats, self.gaps);
        self.run = self.ends(&run);
        Some((run.first(), sample.weight))
    }

    /// Returns the ends of a run, with the entries that continue it; `None` if it has no repeats.
    fn ends(&mut self, run: &Run<'a>) -> Option<RunCursor<'a>> {
        let sample = run.sample;
        let mut ticks = run.times.count();
        let mut ends = (ticks > 0).then(|| (run.repeat(1), run.repeat(ticks)));
        // The spacing of the last entry that has one.
        let mut spacing_ns = run.times.spacing_ns();
        for (next, repeats) in self.unpacked.by_ref() {
            let last_ns = ends.map_or(run.first().time_ns, |(_, last)| last.time_ns);
            let run = Run::new(next, repeats, self.gaps);
            // In a damaged buffer, time may go back.
            let apart_ns = run.first().time_ns.checked_sub(last_ns);
            let is_same = (next.stack, next.event) == (sample.stack, RowEvent::Unknown)
                && sample.event == RowEvent::Unknown
                && next.cpu_delta_ns == Some(0);
            let own_ns = run.times.spacing_ns();
            let max_apart_ns = MAX_SPACINGS_IN_RUN.saturating_mul(spacing_ns.max(own_ns));
            // What the thread did in a pause is unknown. A gap within an entry is not a pause: the
            // sampler saw that the thread had not run in the gap.
            if !is_same || apart_ns.is_none_or(|ns| ns > max_apart_ns) {
                self.next = Some((next, repeats));
                break;
            }
            if own_ns > 0 {
                spacing_ns = own_ns;
            }
            let begin = ends.map_or_else(|| run.repeat(0), |(first, _)| first);
            ends = Some((begin, run.repeat(repeats.count)));
            ticks = ticks
                .saturating_add(next.weight)
                .saturating_add(repeats.count);
        }
        let (first, last) = ends?;
        let is_one = ticks == 1 || first.time_ns == last.time_ns;
        Some(RunCursor::Ends {
            first: (!is_one).then_some(first),
            last,
            ticks,
        })
    }
}

impl Rows<'_> {
    /// Returns the next row, and the number of ticks that it represents, beginning with its own.
    /// The number is the row's weight; for an idle row, one plus the ticks of the left-out rows
    /// after it.
    #[inline(always)]
    pub(crate) fn next_with_count(&mut self) -> Option<(SampleRow, u64)> {
        if self.run.is_some() {
            return self.next_of_run();
        }
        let KeptRows::AtStride(stride) = self.kept else {
            return self.next_sleep();
        };
        let (mut first, repeats) = self.unpacked.next()?;
        if repeats.count > 0 {
            first = self.begin_run(first, repeats, stride);
        }
        Some((first, first.weight))
    }
}

impl Iterator for Rows<'_> {
    type Item = SampleRow;

    #[inline(always)]
    fn next(&mut self) -> Option<SampleRow> {
        self.next_with_count().map(|(row, _)| row)
    }
}

/// Iterates over rows, and repeats each for the ticks that were left out after it, if asked.
///
/// The repeats are spread evenly up to the next row. They share that row's CPU time with it, because
/// the thread used it in this time. The last row is not repeated: the thread was not sampled
/// afterwards.
pub(crate) struct SpreadRows<I> {
    rows: I,
    repeats: bool,
    repeated: Option<Repeated>,
}

/// A row that is being repeated, and the row after it.
struct Repeated {
    row: SampleRow,
    next: SampleRow,
    /// Number of the next repeat, from 1 on.
    number: u64,
}

impl Repeated {
    /// Returns the part of the next row's CPU time that the repeat `number` has.
    fn cpu_ns(&self, number: u64) -> Option<u64> {
        let (cpu_ns, parts) = (
            u128::from(self.next.cpu_delta_ns?),
            u128::from(self.row.weight),
        );
        let up_to = |number: u64| cpu_ns * u128::from(number) / parts;
        Some((up_to(number) - up_to(number - 1)) as u64)
    }

    fn repeat(&self) -> SampleRow {
        let length_ns = u128::from(self.next.time_ns.saturating_sub(self.row.time_ns));
        let later_ns = length_ns * u128::from(self.number) / u128::from(self.row.weight);
        SampleRow {
            cpu_delta_ns: self.cpu_ns(self.number),
            // The thread may have run other events in the meantime.
            event: self.row.event,
            ..self.row.later_by(later_ns as u64)
        }
    }
}

impl<I: Iterator<Item = SampleRow>> SpreadRows<I> {
    pub(crate) fn new(rows: I, repeats: bool) -> Self {
        Self {
            rows,
            repeats,
            repeated: None,
        }
    }

    /// Returns the row, and keeps it if it is to be repeated.
    fn begin(&mut self, row: SampleRow) -> SampleRow {
        if row.weight > 1 && self.repeats {
            self.repeated = self.rows.next().map(|next| Repeated {
                row,
                next,
                number: 1,
            });
        }
        SampleRow { weight: 1, ..row }
    }
}

impl<I: Iterator<Item = SampleRow>> Iterator for SpreadRows<I> {
    type Item = SampleRow;

    fn next(&mut self) -> Option<SampleRow> {
        let Some(repeated) = &mut self.repeated else {
            let row = self.rows.next()?;
            return Some(self.begin(row));
        };
        if repeated.number < repeated.row.weight {
            let row = repeated.repeat();
            repeated.number += 1;
            return Some(row);
        }
        let row = SampleRow {
            cpu_delta_ns: repeated.cpu_ns(repeated.row.weight),
            ..repeated.next
        };
        self.repeated = None;
        Some(self.begin(row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns repeats without gaps between their ticks.
    fn repeats(count: u64, span_ns: u64) -> Repeats {
        Repeats {
            count,
            span_ns,
            first_tick: None,
        }
    }

    #[test]
    fn cut_before_drops_the_old_part_of_a_run() {
        // Queued in the middle of the run.
        let event = RowEvent::Running { ns: -50 };
        let whole = (
            SampleRow {
                stack: 4,
                time_ns: 1000,
                cpu_delta_ns: Some(9),
                event,
                weight: 6,
            },
            repeats(7, 93),
        );
        let times = |(row, repeats): (SampleRow, Repeats)| {
            let mut rows = SampleRows::default();
            rows.push(row, repeats);
            assert!(rows.iter(&TickGaps::default()).all(|row| row.event
                == RowEvent::Running {
                    ns: row.time_ns as i64 - 1050
                }));
            assert!(
                rows.iter(&TickGaps::default())
                    .all(|row| row.event.delay_ns() == Some(row.time_ns.saturating_sub(1050)))
            );
            rows.iter(&TickGaps::default())
                .map(|row| (row.stack, row.time_ns, row.cpu_delta_ns))
                .collect::<Vec<_>>()
        };
        let all = times(whole);
        for cut_ns in 990..=1100 {
            let left = cut_before(whole.0, whole.1, cut_ns, &TickGaps::default())
                .map(times)
                .unwrap_or_default();
            let expected: Vec<_> = all
                .iter()
                .copied()
                .filter(|&(_, time_ns, _)| time_ns >= cut_ns)
                .collect();
            assert_eq!(left.len(), expected.len(), "cut at {cut_ns}");
            for (left, expected) in left.iter().zip(&expected) {
                // The remaining rows are spaced evenly again, with rounding.
                assert!(
                    left.1.abs_diff(expected.1) <= 1 && left.1 >= cut_ns,
                    "{left:?} for {expected:?}"
                );
                assert_eq!((left.0, left.2), (expected.0, expected.2));
            }
        }
        let one = SampleRow {
            stack: 1,
            time_ns: 50,
            cpu_delta_ns: None,
            event: RowEvent::Idle,
            weight: 1,
        };
        assert_eq!(
            cut_before(one, Repeats::default(), 50, &TickGaps::default()),
            Some((one, Repeats::default()))
        );
        assert_eq!(
            cut_before(one, Repeats::default(), 51, &TickGaps::default()),
            None
        );
    }

    #[test]
    fn pushed_rows_are_read_back() {
        let row = |stack, time_ns, cpu_delta_ns: Option<u64>| {
            let event = RowEvent::from_field(cpu_delta_ns.map(|_| 0));
            SampleRow {
                stack,
                time_ns,
                cpu_delta_ns,
                event,
                weight: 1,
            }
        };
        let rows = [
            row(0, 5, None),
            row(3, 1_000_000_000_000, Some(0)),
            row(1, 1_000_000_000_001, Some(7)),
        ];
        let mut samples = SampleRows::default();
        rows.iter()
            .for_each(|row| samples.push(*row, Repeats::default()));
        assert_eq!(samples.iter(&TickGaps::default()).collect::<Vec<_>>(), rows);
        assert_eq!(samples.rows(), 3);
        samples.push(row(2, 1_000_000_000_100, Some(9)), repeats(3, 31));
        let event = |ns: i64| SampleRow {
            event: RowEvent::Running { ns },
            ..row(7, 1_000_000_000_200 + ns as u64, None)
        };
        samples.push(event(0), repeats(2, 60));
        assert_eq!(
            samples
                .iter(&TickGaps::default())
                .skip(7)
                .collect::<Vec<_>>(),
            [event(0), event(30), event(60)]
        );
        let run: Vec<_> = samples.iter(&TickGaps::default()).skip(3).take(4).collect();
        let later = |ns: u64| row(2, 1_000_000_000_100 + ns, Some(0));
        assert_eq!(
            run,
            [
                row(2, 1_000_000_000_100, Some(9)),
                later(10),
                later(20),
                later(31)
            ]
        );
        assert_eq!(samples.rows(), 10);

        let all: Vec<_> = samples.iter(&TickGaps::default()).collect();
        let thinned = |samples: &mut SampleRows, stride| {
            samples.thin_idle_rows(stride);
            let kept: Vec<_> = samples.iter(&TickGaps::default()).collect();
            assert_eq!(
                (kept.len() as u64, samples.rows()),
                (samples.kept_rows(&TickGaps::default()), 10)
            );
            kept.iter()
                .map(|row| {
                    all.iter()
                        .position(|other| other == row)
                        .expect("one of all")
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(thinned(&mut samples, 2), [0, 1, 2, 3, 4, 6, 7, 8, 9]);
        assert_eq!(thinned(&mut samples, 3), [0, 1, 2, 3, 4, 6, 7, 8, 9]);
        assert_eq!(thinned(&mut samples, u64::MAX), [0, 1, 2, 3, 4, 6, 7, 8, 9]);
    }

    fn row(time_ns: u64, weight: u64) -> SampleRow {
        SampleRow {
            stack: 2,
            time_ns,
            cpu_delta_ns: Some(1),
            event: RowEvent::Unknown,
            weight,
        }
    }

    /// Returns the time and the count of each row.
    fn times_and_counts(samples: &SampleRows) -> Vec<(u64, u64)> {
        let gaps = TickGaps::default();
        let mut rows = samples.iter(&gaps);
        let with_count = || rows.next_with_count();
        let rows = std::iter::from_fn(with_count);
        rows.map(|(row, count)| (row.time_ns, count)).collect()
    }

    #[test]
    fn rows_stand_for_the_ticks_from_them_on() {
        let mut samples = SampleRows::default();
        for (time_ns, weight, count) in [(10, 1, 0), (20, 30, 0), (400, 4, 5)] {
            let span_ns = 10 * count;
            samples.push(row(time_ns, weight), repeats(count, span_ns));
        }
        let first = [(10, 1), (20, 30), (400, 4)];
        let with = |run: &[(u64, u64)]| [&first, run].concat();
        let all = [(410, 1), (420, 1), (430, 1), (440, 1), (450, 1)];
        assert_eq!(times_and_counts(&samples), with(&all));
        samples.thin_idle_rows(2);
        assert_eq!(
            times_and_counts(&samples),
            with(&[(410, 2), (430, 2), (450, 1)])
        );
        samples.thin_idle_rows(3);
        assert_eq!(
            times_and_counts(&samples),
            with(&[(410, 3), (440, 1), (450, 1)])
        );
        samples.thin_idle_rows(u64::MAX);
        assert_eq!(times_and_counts(&samples), with(&[(410, 4), (450, 1)]));
        samples.keep_ends_of_sleeps();
        assert_eq!(times_and_counts(&samples), with(&[(410, 4), (450, 1)]));
    }

    #[test]
    fn thinned_run_keeps_its_ends_and_the_sum_of_its_ticks() {
        for count in (0..=12).chain([1000, u32::MAX.into()]) {
            let strides = (1..=14).chain([count.max(1), count + 1, u64::MAX]);
            for stride in strides.filter(|stride| count <= 1000 || *stride > 1 << 20) {
                let mut samples = SampleRows::default();
                let span_ns = 10 * count;
                samples.push(row(100, 7), repeats(count, span_ns));
                samples.thin_idle_rows(stride);
                let rows = times_and_counts(&samples);
                let context = format!("{count} repeats, stride {stride}: {rows:?}");
                assert_eq!(rows[0], (100, 7), "{context}");
                assert_eq!(
                    rows.len() as u64,
                    samples.kept_rows(&TickGaps::default()),
                    "{context}"
                );
                // Number 1, every `stride`-th one after it, and the last one.
                let kept = count.min(1) + count.saturating_sub(1).div_ceil(stride);
                assert_eq!(rows.len() as u64, 1 + kept);
                let ticks: u64 = rows[1..].iter().map(|(_, ticks)| ticks).sum();
                assert_eq!(ticks, count, "{context}");
                if count == 0 {
                    continue;
                }
                assert_eq!(rows[1].0, 110, "{context}");
                assert_eq!(rows[rows.len() - 1], (100 + span_ns, 1), "{context}");
                // A row's ticks reach up to the next row.
                for pair in rows[1..].windows(2) {
                    assert_eq!(pair[0].0 + 10 * pair[0].1, pair[1].0, "{context}");
                    assert!(pair[0].1 <= stride, "{context}");
                }
                let least = rows.len() as u64 - 1;
                assert!(least >= samples.least_idle_rows, "{context}");
                assert_eq!(samples.least_idle_rows, count.min(2));
            }
        }
    }

    #[test]
    fn entries_of_one_sleep_are_one_run() {
        let idle = |time_ns| SampleRow {
            cpu_delta_ns: Some(0),
            ..row(time_ns, 1)
        };
        let thinned = |entries: &[(SampleRow, u64)]| {
            let mut samples = SampleRows::default();
            for &(row, count) in entries {
                let span_ns = 10 * count;
                samples.push(row, repeats(count, span_ns));
            }
            samples.keep_ends_of_sleeps();
            let rows = times_and_counts(&samples);
            assert_eq!(rows.len() as u64, samples.kept_rows(&TickGaps::default()));
            rows
        };
        let sleep = [(row(100, 1), 3), (idle(140), 9), (idle(240), 0)];
        assert_eq!(thinned(&sleep), [(100, 1), (110, 13), (240, 1)]);
        assert_eq!(thinned(&sleep[1..]), [(140, 1), (150, 9), (240, 1)]);
        // A row that also represents ticks after its own time.
        let waits = [
            (row(100, 1), 0),
            (
                SampleRow {
                    weight: 4,
                    ..idle(110)
                },
                2,
            ),
        ];
        assert_eq!(thinned(&waits), [(100, 1), (110, 5), (130, 1)]);
        // The thread has run, sleeps elsewhere, or was not looked at in between.
        let ran = [(row(100, 1), 3), (row(140, 1), 2)];
        assert_eq!(
            thinned(&ran),
            [(100, 1), (110, 2), (130, 1), (140, 1), (150, 1), (160, 1)]
        );
        let elsewhere = SampleRow {
            stack: 9,
            ..idle(140)
        };
        for other in [elsewhere, idle(170)] {
            let rows = thinned(&[(row(100, 1), 1), (other, 1)]);
            let at_ns = other.time_ns;
            assert_eq!(rows, [(100, 1), (110, 1), (at_ns, 1), (at_ns + 10, 1)]);
        }
    }

    #[test]
    fn run_has_no_row_in_a_gap_of_the_ticks() {
        // Ticks 0 to 4 at 0 to 40, and ticks from 5 on at 900.
        let mut entry = EntryWriter::default();
        entry.number(900).number(40).number(5);
        let mut gaps = TickGaps::default();
        assert!(gaps.read(&mut EntryReader::new(entry.bytes())).is_some());
        let mut samples = SampleRows::default();
        let repeats = Repeats {
            first_tick: Some(1),
            ..repeats(6, 910)
        };
        samples.push(row(10, 1), repeats);
        let times = |samples: &SampleRows| -> Vec<u64> {
            samples.iter(&gaps).map(|row| row.time_ns).collect()
        };
        assert_eq!(times(&samples), [10, 20, 30, 40, 900, 910, 920]);
        samples.thin_idle_rows(2);
        assert_eq!(times(&samples), [10, 20, 40, 910, 920]);
        // The gap does not count as time between two ticks: the next entry is not part of the
        // sleep.
        let later = SampleRow {
            cpu_delta_ns: Some(0),
            ..row(1200, 1)
        };
        samples.push(later, Repeats::default());
        samples.keep_ends_of_sleeps();
        assert_eq!(times(&samples), [10, 20, 920, 1200]);
        let (cut, left) = cut_before(row(10, 1), repeats, 500, &gaps).expect("three ticks");
        assert_eq!((cut.time_ns, left.count, left.span_ns), (900, 2, 20));
        assert_eq!(left.first_tick, Some(5));
        let mut samples = SampleRows::default();
        let (cut, left) = cut_before(row(10, 1), repeats, 21, &gaps).expect("five ticks");
        samples.push(cut, left);
        assert_eq!(times(&samples), [30, 40, 900, 910, 920]);
    }

    #[test]
    fn entries_of_one_sleep_keep_their_rows_around_a_gap() {
        // Ticks 0 to 4 at 0 to 40, and ticks from 5 on at 65.
        let mut entry = EntryWriter::default();
        entry.number(65).number(40).number(5);
        let mut gaps = TickGaps::default();
        assert!(gaps.read(&mut EntryReader::new(entry.bytes())).is_some());
        let mut samples = SampleRows::default();
        samples.push(row(40, 1), Repeats::default());
        // The time of its first tick was taken as an interval after the tick before.
        let idle = SampleRow {
            cpu_delta_ns: Some(0),
            ..row(50, 1)
        };
        let first_tick = Some(5);
        samples.push(
            idle,
            Repeats {
                first_tick,
                ..repeats(2, 35)
            },
        );
        let times = |samples: &SampleRows| -> Vec<u64> {
            samples.iter(&gaps).map(|row| row.time_ns).collect()
        };
        assert_eq!(times(&samples), [40, 65, 75, 85]);
        samples.keep_ends_of_sleeps();
        assert_eq!(times(&samples), [40, 65, 85]);
        assert_eq!(samples.kept_rows(&gaps), 3);
    }

    #[test]
    fn entries_are_of_one_sleep_if_they_are_near_by_their_own_spacing() {
        let kept = |entries: &[(u64, u64, u64)]| {
            let mut samples = SampleRows::default();
            for &(time_ns, count, span_ns) in entries {
                let idle = SampleRow {
                    cpu_delta_ns: Some(0),
                    ..row(time_ns, 1)
                };
                samples.push(idle, repeats(count, span_ns));
            }
            samples.keep_ends_of_sleeps();
            let gaps = TickGaps::default();
            samples
                .iter(&gaps)
                .map(|row| row.time_ns)
                .collect::<Vec<_>>()
        };
        // Single rows have the spacing of the run before them.
        assert_eq!(kept(&[(0, 2, 20), (30, 0, 0), (60, 0, 0)]), [0, 10, 60]);
        // The ticks were far apart at first, and are no longer.
        let denser = [(0, 2, 2000), (3000, 2, 20), (3060, 2, 20)];
        assert_eq!(kept(&denser), [0, 1000, 3020, 3060, 3070, 3080]);
        // In a damaged buffer, time goes back.
        let back = [(1000, 2, 20), (500, 2, 20)];
        assert_eq!(kept(&back), [1000, 1010, 1020, 500, 510, 520]);
    }

    #[test]
    fn thread_that_ran_in_few_rows_mostly_sleeps() {
        let mut samples = SampleRows::default();
        let mut mostly_sleeps_after = |row: SampleRow, count| {
            samples.push(row, repeats(count, count));
            samples.mostly_sleeps()
        };
        let idle = |time_ns| SampleRow {
            cpu_delta_ns: Some(0),
            ..row(time_ns, 1)
        };
        assert!(mostly_sleeps_after(row(10, 1), 0));
        assert!(!mostly_sleeps_after(row(20, 1), 9));
        assert!(mostly_sleeps_after(idle(100), 200));
        assert!(!mostly_sleeps_after(row(400, 1), 0));
        // Delayed ticks divide a sleep into many runs.
        assert!((0..40).all(|run| !mostly_sleeps_after(idle(500 + 3 * run), 0)));
        assert!(mostly_sleeps_after(idle(700), 2));
        let unknown = SampleRow {
            cpu_delta_ns: None,
            ..idle(800)
        };
        assert!(!mostly_sleeps_after(unknown, 0));
        assert!(mostly_sleeps_after(idle(900), 1000));
        let event = RowEvent::Running { ns: 5 };
        assert!(!mostly_sleeps_after(
            SampleRow {
                event,
                ..idle(2000)
            },
            1000
        ));
    }

    #[test]
    fn rows_are_repeated_up_to_the_next_one_and_share_its_cpu_time() {
        let row = |stack, time_ns, cpu_delta_ns, weight| SampleRow {
            stack,
            time_ns,
            cpu_delta_ns,
            event: RowEvent::Unknown,
            weight,
        };
        let rows = [
            row(1, 100, Some(7), 1),
            row(2, 200, Some(10), 4),
            row(3, 300, Some(42), 2),
            row(4, 400, None, 3),
        ];
        let spread: Vec<_> = SpreadRows::new(rows.into_iter(), true).collect();
        assert_eq!(
            spread,
            [
                row(1, 100, Some(7), 1),
                row(2, 200, Some(10), 1),
                row(2, 225, Some(10), 1),
                row(2, 250, Some(11), 1),
                row(2, 275, Some(10), 1),
                row(3, 300, Some(11), 1),
                row(3, 350, None, 1),
                row(4, 400, None, 1),
            ]
        );
        assert_eq!(SpreadRows::new([].into_iter(), true).next(), None);
        let plain: Vec<_> = SpreadRows::new(rows.into_iter(), false).collect();
        assert_eq!(plain, rows.map(|row| SampleRow { weight: 1, ..row }));
    }
}
