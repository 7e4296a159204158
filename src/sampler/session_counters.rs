//! The counters of a session: of the process, its memory, the application and the machine.
//!
//! A value of a counter of the application is written only when it has changed. The rows of the
//! ticks before and after the change are written, too, so that a viewer draws the change where it
//! happened.

use std::path::Path;
use std::sync::Arc;

use crate::allocations::{AllocationCounts, all_counts};
use crate::buffer::{EntryHead, EntryKind, all_slab_bytes};
use crate::counters::{
    ALLOCATED_MEMORY, ApplicationCounter, CounterReading, PROCESS_CPU, RESIDENT_MEMORY,
    application_counter_changes, for_each_application_counter, sample_process_cpu_ns,
};
use crate::platform::{ResidentMemory, SYS_FOLDER, monotonic_now};
use crate::sampler::machine_sampler::{CpuSpeedMarkers, EnergySampler};
use crate::sampler::tick_context::TickContext;
use crate::state::Session;
use crate::types::{Features, TimeStamp};
use crate::util::allocator_has;

/// Interval between two samples of the process's CPU time, in ns. The kernel updates the CPU time of
/// threads on other cores only once a scheduler tick, every 1 to 10 ms. Sampled more often, the
/// process's CPU time would appear to stand still and then jump.
const PROCESS_INTERVAL_NS: u64 = 20_000_000;
/// Memory for what the sampler knows of the machine, in bytes: the paths of 1,024 cores.
const MACHINE_BYTES: usize = 256 << 10;

/// The counters that the sampler reads for a session. CPU frequencies are markers, and belong here
/// because they are read with the counters.
pub(super) struct SessionCounters {
    /// When the process's CPU time and memory are read again.
    next_of_process: TimeStamp,
    /// The process's CPU time when the session began, from which the counter counts.
    process_cpu_ns: i64,
    resident_memory: ResidentMemory,
    /// The counter of allocated memory, if the session has it.
    malloc: Option<MallocCounter>,
    of_application: CounterSampler,
    energy: EnergySampler,
    cpu_speeds: CpuSpeedMarkers,
}

impl SessionCounters {
    pub(super) fn new(session: &Session) -> Self {
        let counts_memory = session.settings.features.contains(Features::MEMORY);
        Self {
            next_of_process: TimeStamp(0),
            process_cpu_ns: sample_process_cpu_ns(),
            resident_memory: ResidentMemory::default(),
            malloc: counts_memory.then(|| MallocCounter {
                base: session.allocated_at_start,
                sampled_at: session.started_at,
                written: WrittenCounter::default(),
            }),
            of_application: CounterSampler::default(),
            energy: EnergySampler::default(),
            cpu_speeds: CpuSpeedMarkers::default(),
        }
    }

    /// Finds what the session records of the machine. Without memory, that is not recorded, and the
    /// session's log says so.
    pub(super) fn find_machine(&mut self, session: &Session) {
        let features = session.settings.features;
        if !features.contains(Features::POWER) && !features.contains(Features::CPU_FREQ) {
            return;
        }
        if allocator_has(MACHINE_BYTES) {
            let sys = Path::new(SYS_FOLDER);
            self.energy = EnergySampler::find(session, sys);
            self.cpu_speeds = CpuSpeedMarkers::find(session, sys);
        } else {
            session
                .log
                .add("no memory to read the machine's energy and frequencies");
        }
    }

    /// Begins anew after a pause that has ended at this time.
    pub(super) fn skip_pause(&mut self, now: TimeStamp) {
        self.next_of_process = now;
        self.energy.skip_pause();
    }

    /// Samples all counters. The sampler has seen these pauses.
    pub(super) fn sample(&mut self, context: &TickContext<'_>) {
        let (session, pauses) = (context.session, &context.pauses);
        let now = monotonic_now();
        let is_due = now >= self.next_of_process
            && (session.settings.features).contains(Features::PROCESS_CPU);
        let of_process = is_due.then(|| {
            self.next_of_process = now.plus_ns(PROCESS_INTERVAL_NS);
            (sample_process_cpu_ns(), self.resident_memory.bytes())
        });
        // Skip the counters if a pause has begun during this tick.
        if session.pauses.until(pauses).is_some() {
            return;
        }
        if let Some((cpu_ns, memory)) = of_process {
            let cpu_ns = cpu_ns - self.process_cpu_ns - pauses.cpu_in_pauses_ns;
            put_value(context, PROCESS_CPU.id, now, cpu_ns);
            if let Some(bytes) = memory {
                put_value(context, RESIDENT_MEMORY.id, now, bytes as i64);
            }
        }
        self.sample_each_tick(context, now);
        (self.energy).sample(now, |id, value| put_value(context, id, now, value));
        self.cpu_speeds.add(now, context);
    }

    /// Samples the counters that are read on each tick.
    fn sample_each_tick(&mut self, context: &TickContext<'_>, now: TimeStamp) {
        if let Some(counter) = &mut self.malloc {
            counter.sample(now, &mut |row| put_row(context, row));
        }
        (self.of_application).sample(context.session, now, |row| put_row(context, row));
    }

    /// Writes the values that the counters have now which are read on each tick.
    pub(super) fn write_current(&mut self, context: &TickContext<'_>) {
        let pauses = &context.pauses;
        if !pauses.is_paused && context.session.pauses.until(pauses).is_none() {
            self.sample_each_tick(context, monotonic_now());
        }
        let mut put = |row| put_row(context, row);
        if let Some(counter) = &mut self.malloc {
            let at = counter.sampled_at;
            (counter.written).write_rest(ALLOCATED_MEMORY.id, at, &mut put);
        }
        self.of_application.write_rests(put);
    }
}

/// A row of a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct CounterRow {
    id: u64,
    time: TimeStamp,
    reading: CounterReading,
}

/// Writes a value of a counter that counts no operations.
fn put_value(context: &TickContext<'_>, id: u64, time: TimeStamp, count: i64) {
    let reading = CounterReading {
        count,
        operations: 0,
    };
    put_row(context, CounterRow { id, time, reading });
}

/// Writes a row to the buffer.
fn put_row(context: &TickContext<'_>, row: CounterRow) {
    let mut entry = EntryHead::new(EntryKind::Counter);
    entry
        .number(row.id)
        .number(row.time.since_ns(context.session.process_start))
        .signed(row.reading.count)
        .number(row.reading.operations);
    context.put(row.time, &entry);
}

/// What was written of a counter.
#[derive(Debug, Default)]
struct WrittenCounter {
    reading: CounterReading,
    at: TimeStamp,
    /// Whether the last row repeats the value of the row before.
    shows_rest: bool,
}

impl WrittenCounter {
    fn write(
        &mut self,
        id: u64,
        time: TimeStamp,
        reading: CounterReading,
        put: &mut impl FnMut(CounterRow),
    ) {
        self.shows_rest = reading == self.reading;
        (self.reading, self.at) = (reading, time);
        put(CounterRow { id, time, reading });
    }

    /// Writes what the tick at `now` has read of the counter with this id, if it has changed. The
    /// tick before was at `before`.
    #[inline]
    fn sample(
        &mut self,
        id: u64,
        reading: CounterReading,
        before: TimeStamp,
        now: TimeStamp,
        put: &mut impl FnMut(CounterRow),
    ) {
        if reading != self.reading {
            if self.at < before {
                self.write(id, before, self.reading, put);
            }
            self.write(id, now, reading, put);
        } else if !self.shows_rest {
            self.write(id, now, reading, put);
        }
    }

    /// Writes the value at the last tick, which was at `now`, unless it has been written.
    fn write_rest(&mut self, id: u64, now: TimeStamp, put: &mut impl FnMut(CounterRow)) {
        if self.at < now {
            self.write(id, now, self.reading, put);
        }
    }
}

/// A counter, and what was written of it.
#[derive(Debug)]
struct SampledCounter {
    counter: Arc<ApplicationCounter>,
    /// The counter's value when the session began, if the counter is a sum. The session counts from
    /// there.
    base: CounterReading,
    written: WrittenCounter,
}

/// The counters that the sampler knows.
#[derive(Debug, Default)]
struct CounterSampler {
    counters: Vec<SampledCounter>,
    seen_changes: Option<u64>,
    /// The largest id among the counters that are or were known.
    newest_id: u64,
    /// The time of the last samples.
    sampled_at: TimeStamp,
}

impl SampledCounter {
    fn new(counter: &Arc<ApplicationCounter>, base: CounterReading) -> Self {
        let base = match counter.description.is_level() {
            true => CounterReading::default(),
            false => base,
        };
        Self {
            counter: Arc::clone(counter),
            base,
            written: WrittenCounter::default(),
        }
    }

    fn id(&self) -> u64 {
        self.counter.description.id
    }

    /// Returns what the session has counted when the counter has this reading.
    fn since_base(&self, now: CounterReading) -> CounterReading {
        CounterReading {
            count: now.count.wrapping_sub(self.base.count),
            operations: now.operations.wrapping_sub(self.base.operations),
        }
    }

    #[inline]
    fn sample(&mut self, before: TimeStamp, now: TimeStamp, put: &mut impl FnMut(CounterRow)) {
        let reading = self.since_base(self.counter.read());
        self.written.sample(self.id(), reading, before, now, put);
    }
}

impl CounterSampler {
    /// Samples all counters, and gives the rows to `put`.
    fn sample(&mut self, session: &Session, now: TimeStamp, mut put: impl FnMut(CounterRow)) {
        let before = std::mem::replace(&mut self.sampled_at, now);
        let changes = application_counter_changes();
        if self.seen_changes != Some(changes) {
            self.follow_list(session, before, now, &mut put);
            self.seen_changes = Some(changes);
        }
        for counter in &mut self.counters {
            counter.sample(before, now, &mut put);
        }
    }

    /// Writes the values that have not changed since, so that a profile has them to its end.
    fn write_rests(&mut self, mut put: impl FnMut(CounterRow)) {
        let now = self.sampled_at;
        for counter in &mut self.counters {
            counter.written.write_rest(counter.id(), now, &mut put);
        }
    }

    /// Adds new counters, and samples and forgets dropped counters. A counter is not recorded if
    /// memory for it is lacking.
    fn follow_list(
        &mut self,
        session: &Session,
        before: TimeStamp,
        now: TimeStamp,
        put: &mut impl FnMut(CounterRow),
    ) {
        if let Some(facts) = &session.crash_facts {
            facts.add_application_counters();
        }
        if self.seen_changes.is_none() {
            for (counter, base) in &session.counters_at_start {
                let mut sampled = SampledCounter::new(counter, *base);
                let (id, at_start) = (sampled.id(), sampled.since_base(*base));
                (sampled.written).write(id, session.started_at, at_start, put);
                self.newest_id = self.newest_id.max(id);
                if self.counters.try_reserve(1).is_ok() {
                    self.counters.push(sampled);
                }
            }
        }
        // A counter of this session began with 0 after the last samples.
        let begin = before.max(session.started_at);
        let mut newest_id = self.newest_id;
        let mut new = Vec::new();
        for_each_application_counter(|counter| {
            let id = counter.description.id;
            if id > self.newest_id && counter.registered_at >= session.started_at {
                newest_id = newest_id.max(id);
                if new.try_reserve(1).is_ok() {
                    new.push(SampledCounter::new(counter, CounterReading::default()));
                }
            }
        });
        self.newest_id = newest_id;
        for mut counter in new {
            let id = counter.id();
            (counter.written).write(id, begin, CounterReading::default(), put);
            if self.counters.try_reserve(1).is_ok() {
                self.counters.push(counter);
            }
        }
        self.counters.retain_mut(|counter| {
            let is_dropped = counter.counter.is_dropped();
            if is_dropped {
                counter.sample(before, now, put);
            }
            !is_dropped
        });
    }
}

/// The counter of allocated memory. It counts from the beginning of the session.
#[derive(Debug)]
struct MallocCounter {
    base: AllocationCounts,
    sampled_at: TimeStamp,
    written: WrittenCounter,
}

/// Returns what the application has allocated: what all threads have, less the profiler's buffer.
pub(crate) fn less_own_chunks(all: AllocationCounts) -> AllocationCounts {
    let own_bytes = i64::try_from(all_slab_bytes()).unwrap_or(i64::MAX);
    AllocationCounts {
        bytes: all.bytes.wrapping_sub(own_bytes),
        ..all
    }
}

impl MallocCounter {
    /// Samples the counter, and gives the rows to `put`.
    fn sample(&mut self, now: TimeStamp, put: &mut impl FnMut(CounterRow)) {
        let before = std::mem::replace(&mut self.sampled_at, now);
        let all = less_own_chunks(all_counts());
        let reading = CounterReading {
            count: all.bytes.wrapping_sub(self.base.bytes),
            operations: all.operations.wrapping_sub(self.base.operations),
        };
        (self.written).sample(ALLOCATED_MEMORY.id, reading, before, now, put);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;
    use crate::counters::{OwnedCounter, keep_dropped_counters};
    use crate::state::SessionSettings;
    use crate::types::{CounterParams, CounterUnit};
    use crate::util::as_profiler_work;

    fn new_counter(is_total: bool) -> OwnedCounter {
        OwnedCounter::new(&CounterParams {
            label: "tested",
            category: "Tests",
            description: "",
            is_total,
            unit: CounterUnit::Number,
            color: None,
        })
    }

    /// Returns the time, value and operations of rows of the counters that this test has made.
    fn rows_of(ids: &[u64], rows: &[CounterRow]) -> Vec<(u64, i64, u64)> {
        rows.iter()
            .filter(|row| ids.contains(&row.id))
            .map(|row| (row.time.0, row.reading.count, row.reading.operations))
            .collect()
    }

    /// One test at a time drops counters, because only the newest dropped ones are kept.
    static TESTS: Mutex<()> = Mutex::new(());

    struct Test {
        _only: MutexGuard<'static, ()>,
        session: Session,
        sampler: CounterSampler,
        rows: Vec<CounterRow>,
    }

    impl Test {
        fn new() -> Self {
            let only = TESTS.lock().unwrap_or_else(PoisonError::into_inner);
            keep_dropped_counters();
            let started_at = crate::platform::monotonic_now();
            let mut session = Session::new(
                SessionSettings::for_tests(),
                started_at,
                started_at,
                Vec::new(),
            );
            for_each_application_counter(|counter| {
                let counter = (Arc::clone(counter), counter.read());
                session.counters_at_start.push(counter);
            });
            Self {
                _only: only,
                session,
                sampler: CounterSampler::default(),
                rows: Vec::new(),
            }
        }

        /// Samples at this time after the start.
        fn tick(&mut self, ns: u64) {
            let now = self.session.started_at.plus_ns(ns);
            let rows = &mut self.rows;
            (self.sampler).sample(&self.session, now, |row| rows.push(row));
        }

        /// Returns the rows of this counter, with times after the start.
        fn rows(&self, counter: &OwnedCounter) -> Vec<(u64, i64, u64)> {
            let id = counter.id().expect("it is listed");
            let rows = rows_of(&[id], &self.rows);
            let start = self.session.started_at.0;
            let since_start = |(time, count, operations)| (time - start, count, operations);
            rows.into_iter().map(since_start).collect()
        }
    }

    #[test]
    fn value_is_written_when_it_changes_with_the_rows_around() {
        let counter = new_counter(false);
        counter.set(7);
        let mut test = Test::new();
        for tick in 1..=3 {
            test.tick(tick);
        }
        counter.add(3);
        for tick in 4..=8 {
            test.tick(tick);
        }
        counter.add(-10);
        test.tick(9);
        let before = [(0, 7, 0), (1, 7, 0), (3, 7, 0), (4, 10, 0), (5, 10, 0)];
        let after = [(8, 10, 0), (9, 0, 0)];
        assert_eq!(test.rows(&counter), [&before[..], &after[..]].concat());
        test.tick(10);
        test.tick(11);
        let rows = &mut test.rows;
        rows.clear();
        test.sampler.write_rests(|row| rows.push(row));
        assert_eq!(test.rows(&counter), [(11, 0, 0)]);
    }

    #[test]
    fn sum_begins_with_the_session_and_wraps_around() {
        let counter = new_counter(true);
        counter.add_operation(i64::MAX);
        let mut test = Test::new();
        test.tick(1);
        counter.add_operation(5);
        test.tick(2);
        assert_eq!(test.rows(&counter), [(0, 0, 0), (1, 0, 0), (2, 5, 1)]);
    }

    #[test]
    fn dropped_counter_is_sampled_once_more() {
        let mut test = Test::new();
        test.tick(1);
        let counter = new_counter(true);
        counter.add_operation(1);
        test.tick(2);
        counter.add_operation(1);
        let id = counter.id().expect("it is listed");
        drop(counter);
        let brief = new_counter(true);
        brief.add_operation(4);
        let brief_id = brief.id().expect("it is listed");
        drop(brief);
        test.tick(3);
        test.tick(4);
        let start = test.session.started_at.0;
        let rows = |id| {
            let rows = rows_of(&[id], &test.rows);
            let rows = rows.into_iter();
            rows.map(|(time, count, _)| (time - start, count))
                .collect::<Vec<_>>()
        };
        assert_eq!(rows(id), [(1, 0), (2, 1), (3, 2)]);
        assert_eq!(rows(brief_id), [(2, 0), (3, 4)]);
    }

    #[test]
    fn more_dropped_counters_than_are_kept_are_sampled_once_more_and_forgotten() {
        let mut test = Test::new();
        let counters: Vec<_> = (0..2_500).map(|_| new_counter(true)).collect();
        let ids: Vec<_> = counters.iter().flat_map(OwnedCounter::id).collect();
        assert_eq!(ids.len(), 2_500);
        test.tick(1);
        let known = |test: &Test| {
            let known = test.sampler.counters.iter();
            known.filter(|known| ids.contains(&known.id())).count()
        };
        assert_eq!(known(&test), 2_500);
        counters.iter().for_each(|counter| counter.add_operation(3));
        drop(counters);
        test.tick(2);
        assert_eq!(known(&test), 0);
        let last = rows_of(&ids, &test.rows).into_iter();
        let is_last = |(time, ..): &(u64, i64, u64)| *time == test.session.started_at.0 + 2;
        let last: Vec<_> = last.filter(is_last).collect();
        assert_eq!(last.len(), 2_500);
        assert!(last.iter().all(|row| (row.1, row.2) == (3, 1)));
    }

    #[test]
    fn counter_that_is_dropped_within_the_profilers_work_is_forgotten() {
        let mut test = Test::new();
        let counter = new_counter(true);
        let id = counter.id().expect("it is listed");
        test.tick(1);
        counter.add_operation(3);
        as_profiler_work(|| drop(counter));
        test.tick(2);
        assert!(test.sampler.counters.iter().all(|known| known.id() != id));
        let start = test.session.started_at.0;
        let rows = rows_of(&[id], &test.rows);
        assert_eq!(rows.last(), Some(&(start + 2, 3, 1)));
        let is_listed = || {
            let mut is_listed = false;
            for_each_application_counter(|counter| is_listed |= counter.description.id == id);
            is_listed
        };
        assert!(is_listed());
        keep_dropped_counters();
        assert!(!is_listed());
    }
}
