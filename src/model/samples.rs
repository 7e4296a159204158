//! The samples of a thread, in columns.

use crate::model::stacks::StackId;

/// A sample of a thread.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Sample {
    /// `None` if the sample has no stack.
    pub(crate) stack: Option<StackId>,
    pub(crate) time_ns: i64,
    /// CPU time of the thread since its previous sample.
    pub(crate) cpu_delta_ns: Option<u64>,
    /// Time that an event waited for the thread's event loop.
    pub(crate) event_delay_ns: Option<u64>,
    /// In the thread's [`WeightUnit`]; 1 for a plain sample.
    pub(crate) weight: i64,
}

/// The unit of the weights of a thread's samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum WeightUnit {
    #[default]
    Samples,
    Milliseconds,
    Bytes,
}

/// The samples of a thread, by time. A column whose values are all missing takes no memory.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    pub(crate) weight_unit: WeightUnit,
    /// The number of the stack plus one; 0 for none.
    stacks: Vec<u32>,
    times_ns: Vec<i64>,
    /// The value plus one; 0 for none.
    cpu_deltas_ns: Vec<u64>,
    event_delays_ns: Vec<u64>,
    weights: Vec<i64>,
}

/// Sets an element of a column of `length` elements, unless it is the default and the column has no
/// other value yet.
fn set<T: Copy + PartialEq>(
    column: &mut Vec<T>,
    length: usize,
    index: usize,
    value: T,
    default: T,
) {
    if column.is_empty() && value == default {
        return;
    }
    column.resize(length, default);
    column[index] = value;
}

impl Samples {
    /// Adds a sample. It must not be earlier than the last one.
    pub(crate) fn push(&mut self, sample: Sample) {
        let index = self.len();
        self.stacks.push(0);
        self.times_ns.push(0);
        self.put(index, sample);
    }

    /// Changes the sample with this index. Panics if the index is out of bounds. The times must
    /// remain in order once all changes are made.
    #[cfg(test)]
    pub(crate) fn update(&mut self, index: usize, change: impl FnOnce(&mut Sample)) {
        let mut sample = self.get(index);
        change(&mut sample);
        self.put(index, sample);
    }

    fn put(&mut self, index: usize, sample: Sample) {
        self.stacks[index] = sample.stack.map_or(0, |stack| stack.0 + 1);
        self.times_ns[index] = sample.time_ns;
        let length = self.len();
        let optional = |value: Option<u64>| value.map_or(0, |value| value.saturating_add(1));
        let cpu_delta = optional(sample.cpu_delta_ns);
        set(&mut self.cpu_deltas_ns, length, index, cpu_delta, 0);
        let event_delay = optional(sample.event_delay_ns);
        set(&mut self.event_delays_ns, length, index, event_delay, 0);
        set(&mut self.weights, length, index, sample.weight, 1);
    }

    pub(crate) fn len(&self) -> usize {
        self.times_ns.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.times_ns.is_empty()
    }

    /// Returns the sample with this index. Panics if the index is out of bounds.
    pub(crate) fn get(&self, index: usize) -> Sample {
        let optional = |column: &[u64]| column.get(index).copied().unwrap_or(0).checked_sub(1);
        Sample {
            stack: self.stacks[index].checked_sub(1).map(StackId),
            time_ns: self.times_ns[index],
            cpu_delta_ns: optional(&self.cpu_deltas_ns),
            event_delay_ns: optional(&self.event_delays_ns),
            weight: self.weights.get(index).copied().unwrap_or(1),
        }
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = Sample> + '_ {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Returns the times of the first sample and of the last one; `None` without samples.
    pub(crate) fn range_ns(&self) -> Option<(i64, i64)> {
        Some((*self.times_ns.first()?, *self.times_ns.last()?))
    }

    /// Returns the index of the first sample at or after a time.
    pub(crate) fn first_from(&self, time_ns: i64) -> usize {
        self.times_ns.partition_point(|other| *other < time_ns)
    }

    /// Returns the ticks of the row with this index. Panics if the index is out of bounds.
    pub(crate) fn row_ticks(&self, index: usize) -> RowTicks {
        let row = self.get(index);
        let until_ns = self.times_ns.get(index + 1).unwrap_or(&row.time_ns);
        RowTicks {
            first_ns: row.time_ns,
            length_ns: until_ns.saturating_sub(row.time_ns).max(0),
            count: self.count(&row).max(1),
        }
    }

    /// Returns how many samples a row counts for: its weight if that is a number of samples. Such a
    /// row takes the place of others like it, which were left out after it.
    pub(crate) fn count(&self, sample: &Sample) -> u64 {
        match self.weight_unit {
            WeightUnit::Samples => sample.weight.max(0).unsigned_abs(),
            WeightUnit::Milliseconds | WeightUnit::Bytes => 1,
        }
    }

    pub(crate) fn has_cpu_deltas(&self) -> bool {
        !self.cpu_deltas_ns.is_empty()
    }

    pub(crate) fn has_event_delays(&self) -> bool {
        !self.event_delays_ns.is_empty()
    }

    /// Returns whether a weight differs from 1.
    pub(crate) fn has_weights(&self) -> bool {
        !self.weights.is_empty()
    }
}

/// The ticks that a row counts for: evenly spread over the time until the next row. The last row's
/// ticks all have its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RowTicks {
    first_ns: i64,
    length_ns: i64,
    /// At least 1.
    pub(crate) count: u64,
}

impl RowTicks {
    /// Returns one tick.
    #[cfg(any(feature = "formats", feature = "protobuf"))]
    pub(crate) fn single(time_ns: i64) -> Self {
        Self {
            first_ns: time_ns,
            length_ns: 0,
            count: 1,
        }
    }

    /// Returns the time of a tick, by its number from 0 on. The tick after the last one has the time of
    /// the next row.
    pub(crate) fn time_ns(&self, number: u64) -> i64 {
        let passed_ns = i128::from(self.length_ns) * i128::from(number) / i128::from(self.count);
        self.first_ns.saturating_add(passed_ns as i64)
    }

    /// Returns the time of the last tick.
    pub(crate) fn last_ns(&self) -> i64 {
        self.time_ns(self.count - 1)
    }

    /// Returns the number of the first tick after `from` at a time that `is_within` rejects, or the
    /// number of ticks. It must reject all times after one that it rejects.
    pub(crate) fn end_of(&self, from: u64, is_within: impl Fn(i64) -> bool) -> u64 {
        let (mut low, mut high) = (from + 1, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match is_within(self.time_ns(middle)) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }
}

/// Returns the range from the start of the earlier range to the end of the later one.
pub(crate) fn hull(one: (i64, i64), other: (i64, i64)) -> (i64, i64) {
    (one.0.min(other.0), one.1.max(other.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_a_row_reach_up_to_the_next_row() {
        let mut samples = Samples::default();
        for (time_ns, weight) in [(100, 4), (140, -3), (150, 1 << 40)] {
            samples.push(Sample {
                stack: None,
                time_ns,
                cpu_delta_ns: None,
                event_delay_ns: None,
                weight,
            });
        }
        let ticks = samples.row_ticks(0);
        let times: Vec<_> = (0..=ticks.count).map(|tick| ticks.time_ns(tick)).collect();
        assert_eq!(times, [100, 110, 120, 130, 140]);
        let end_of = |from, end_ns| ticks.end_of(from, |time_ns| time_ns < end_ns);
        assert_eq!([0, 111, 131].map(|end_ns| end_of(0, end_ns)), [1, 2, 4]);
        assert_eq!([0, 1000].map(|end_ns| end_of(2, end_ns)), [3, 4]);
        assert_eq!(samples.row_ticks(1).count, 1);
        let last = samples.row_ticks(2);
        assert_eq!((last.count, last.time_ns(1 << 39)), (1 << 40, 150));
    }

    #[test]
    fn columns_keep_values_and_gaps() {
        let samples = [
            Sample {
                stack: None,
                time_ns: -5,
                cpu_delta_ns: None,
                event_delay_ns: None,
                weight: 1,
            },
            Sample {
                stack: Some(StackId(0)),
                time_ns: 1,
                cpu_delta_ns: Some(0),
                event_delay_ns: None,
                weight: 1,
            },
            Sample {
                stack: Some(StackId(9)),
                time_ns: 2,
                cpu_delta_ns: None,
                event_delay_ns: Some(3),
                weight: -4,
            },
        ];
        let mut columns = Samples::default();
        for sample in samples {
            columns.push(sample);
        }
        assert!(columns.iter().eq(samples));
        columns.update(0, |sample| sample.weight = 2);
        assert_eq!(
            columns.get(0),
            Sample {
                weight: 2,
                ..samples[0]
            }
        );
        assert!(columns.iter().skip(1).eq(samples[1..].iter().copied()));
        assert!(columns.has_cpu_deltas() && columns.has_event_delays() && columns.has_weights());
    }
}
