//! Spreads rows that count for several ticks, for a format whose readers count rows.

use crate::stream::decode::rows::SampleRow;

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
    use crate::stream::decode::rows::RowEvent;

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
