//! Where async tasks have waited: the rows of their track, and its intervals.

use std::collections::HashMap;

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
