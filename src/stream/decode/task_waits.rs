//! Where async tasks have waited: the rows of their track, and its intervals.

use crate::model::WeightUnits;
use crate::util::vec_growth_bytes;

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

/// The waits of a profile.
#[derive(Debug, Default)]
pub(crate) struct TaskWaits(Vec<TaskWaitEntry>);

impl TaskWaits {
    pub(super) fn push(&mut self, entry: TaskWaitEntry) {
        self.0.push(entry);
    }

    pub(super) fn sort(&mut self) {
        self.0.sort_by_key(|entry| entry.time_ns);
    }

    /// Returns how much memory the entries in `more` bytes of the buffer take.
    pub(super) fn growth_bytes(&self, more: usize) -> usize {
        vec_growth_bytes(&self.0, more / 6)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the rows, whose weights are in ms. What is less than 1 ms adds to the stack's next row.
    pub(crate) fn rows(&self) -> impl Iterator<Item = TaskWaitRow> + '_ {
        self.rows_in(NS_PER_MS)
    }

    /// Returns rows for a viewer that ignores weights, and what each of them stands for, in ms: a row
    /// with the weight 3 is to be written three times. They are at most `max_rows`.
    pub(crate) fn equal_rows(
        &self,
        max_rows: u64,
    ) -> (u64, impl Iterator<Item = TaskWaitRow> + '_) {
        let weights = self.0.iter().map(|entry| entry.weight_ns);
        let all_ms = weights.fold(0, u64::saturating_add) / NS_PER_MS;
        let unit_ms = all_ms.div_ceil(max_rows.max(1)).max(1);
        (unit_ms, self.rows_in(unit_ms.saturating_mul(NS_PER_MS)))
    }

    fn rows_in(&self, unit_ns: u64) -> impl Iterator<Item = TaskWaitRow> + '_ {
        let mut units = WeightUnits::new(unit_ns);
        self.0.iter().filter_map(move |entry| {
            let weight = units.take(entry.stack, entry.weight_ns);
            (weight > 0).then_some(TaskWaitRow {
                stack: entry.stack,
                time_ns: entry.time_ns,
                weight,
            })
        })
    }

    /// Returns the entries with an interval.
    pub(crate) fn intervals(&self) -> impl Iterator<Item = &TaskWaitEntry> {
        self.0.iter().filter(|entry| entry.interval_ns > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let waits = waits(&entries);
        let (unit_ms, rows) = waits.equal_rows(100);
        assert_eq!(unit_ms, 90);
        let count: u64 = rows.map(|row| row.weight).sum();
        assert!((93..=100).contains(&count), "{count}");
        let (unit_ms, rows) = waits.equal_rows(u64::MAX);
        assert_eq!((unit_ms, rows.map(|row| row.weight).sum()), (1, 9_000));
    }
}
