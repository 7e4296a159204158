//! Samples the counters of the application.
//!
//! A value is written only when it has changed. The rows of the ticks before and after the change
//! are written, too, so that a viewer draws the change where it happened.

use std::sync::Arc;

use crate::buffer::{EntryHead, EntryKind, LaneHandle};
use crate::counters::{
    ApplicationCounter, CounterDescription, CounterReading, application_counter_changes,
    for_each_application_counter,
};
use crate::state::Session;
use crate::types::TimeStamp;

/// A row of a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CounterRow {
    pub(crate) id: u64,
    pub(crate) time: TimeStamp,
    pub(crate) reading: CounterReading,
}

/// Writes rows of counters to the buffer.
pub(crate) struct CounterWriter<'a> {
    session: &'a Session,
    lane: &'a LaneHandle<'static>,
}

impl CounterRow {
    pub(super) fn without_operations(id: u64, time: TimeStamp, count: i64) -> Self {
        let reading = CounterReading {
            count,
            operations: 0,
        };
        Self { id, time, reading }
    }
}

impl<'a> CounterWriter<'a> {
    pub(crate) fn of(session: &'a Session, lane: &'a LaneHandle<'static>) -> Self {
        Self { session, lane }
    }

    /// Writes a value of one of this crate's counters.
    pub(crate) fn value(&mut self, counter: &CounterDescription, time: TimeStamp, count: i64) {
        self.row(&CounterRow::without_operations(counter.id, time, count));
    }

    pub(crate) fn row(&mut self, row: &CounterRow) {
        let mut entry = EntryHead::new(EntryKind::Counter);
        entry
            .number(row.id)
            .number(row.time.since_ns(self.session.process_start))
            .signed(row.reading.count)
            .number(row.reading.operations);
        self.lane.put(self.session.generation, row.time, &entry);
    }
}

/// What was written of a counter.
#[derive(Debug, Default)]
pub(super) struct WrittenCounter {
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
    pub(super) fn sample(
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
    pub(super) fn write_rest(&mut self, id: u64, now: TimeStamp, put: &mut impl FnMut(CounterRow)) {
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
pub(crate) struct CounterSampler {
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

    fn read(&self) -> CounterReading {
        let now = self.counter.read();
        CounterReading {
            count: now.count.wrapping_sub(self.base.count),
            operations: now.operations.wrapping_sub(self.base.operations),
        }
    }

    fn write(
        &mut self,
        time: TimeStamp,
        reading: CounterReading,
        put: &mut impl FnMut(CounterRow),
    ) {
        self.written.write(self.id(), time, reading, put);
    }

    #[inline]
    fn sample(&mut self, before: TimeStamp, now: TimeStamp, put: &mut impl FnMut(CounterRow)) {
        let reading = self.read();
        self.written.sample(self.id(), reading, before, now, put);
    }
}

impl CounterSampler {
    /// Samples all counters, and gives the rows to `put`.
    pub(crate) fn sample(
        &mut self,
        session: &Session,
        now: TimeStamp,
        mut put: impl FnMut(CounterRow),
    ) {
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
    pub(crate) fn write_rests(&mut self, mut put: impl FnMut(CounterRow)) {
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
        let is_first = self.seen_changes.is_none();
        if is_first {
            for (counter, base) in &session.counters_at_start {
                let mut sampled = SampledCounter::new(counter, *base);
                let at_start = match counter.description.is_level() {
                    true => *base,
                    false => CounterReading::default(),
                };
                sampled.write(session.started_at, at_start, put);
                self.newest_id = self.newest_id.max(counter.description.id);
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
            counter.write(begin, CounterReading::default(), put);
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
