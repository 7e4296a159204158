//! Numbers with fractions, which the application changes and counters show.
//!
//! The profile has whole numbers. So a counter shows such a number in parts of one: the sampler reads
//! the number, multiplies it and rounds. The number itself is kept as a float, so that a sum does not
//! collect the rounding errors of its parts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::counters::description::CounterReading;

/// A number with a fraction, and the number of changes that made it.
#[derive(Debug, Default)]
pub(crate) struct FloatValues {
    /// The bits of the float.
    value: AtomicU64,
    operations: AtomicU64,
}

impl FloatValues {
    fn value(&self) -> f64 {
        f64::from_bits(self.value.load(Ordering::Relaxed))
    }

    fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }

    /// Adds to the number. Ignores what would not give a finite number.
    #[inline]
    pub(crate) fn add(&self, number: f64) {
        let add = |before| {
            let sum = f64::from_bits(before) + number;
            sum.is_finite().then(|| sum.to_bits())
        };
        let _ = (self.value).fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Adds to the number what a few operations add together.
    #[inline]
    pub(crate) fn add_operations(&self, number: f64, operations: u64) {
        self.add(number);
        self.operations.fetch_add(operations, Ordering::Relaxed);
    }

    /// Sets the number. Ignores what is not a finite number.
    #[inline]
    pub(crate) fn set(&self, number: f64) {
        if number.is_finite() {
            self.value.store(number.to_bits(), Ordering::Relaxed);
        }
    }
}

/// How a counter shows a number with a fraction.
#[derive(Debug)]
pub(crate) struct ScaledFloat {
    values: Arc<FloatValues>,
    parts_of_one: f64,
    /// The number and the operations that the counter does not show.
    base: (f64, u64),
}

impl ScaledFloat {
    /// Shows the whole number.
    pub(crate) fn new(values: &Arc<FloatValues>, parts_of_one: f64) -> Self {
        Self {
            values: Arc::clone(values),
            parts_of_one,
            base: (0.0, 0),
        }
    }

    /// Shows the growth of the number from now on.
    pub(crate) fn from_now(values: &Arc<FloatValues>, parts_of_one: f64) -> Self {
        let base = (values.value(), values.operations());
        Self {
            base,
            ..Self::new(values, parts_of_one)
        }
    }

    /// Reads both numbers. A concurrent change may be in only one of them. A number beyond the
    /// limits of the type becomes the limit.
    pub(crate) fn read(&self) -> CounterReading {
        let value = (self.values.value() - self.base.0) * self.parts_of_one;
        CounterReading {
            count: value.round() as i64,
            operations: self.values.operations().wrapping_sub(self.base.1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(scaled: &ScaledFloat) -> (i64, u64) {
        let reading = scaled.read();
        (reading.count, reading.operations)
    }

    #[test]
    fn sum_does_not_collect_rounding_errors() {
        let values = Arc::default();
        let whole = ScaledFloat::new(&values, 1.0);
        let parts = ScaledFloat::new(&values, 1e6);
        for _ in 0..1000 {
            values.add_operations(0.0004, 1);
        }
        assert_eq!(read(&whole), (0, 1000));
        assert_eq!(read(&parts), (400_000, 1000));
        let later = ScaledFloat::from_now(&values, 1e6);
        values.add_operations(1.5, 3);
        assert_eq!(read(&later), (1_500_000, 3));
        assert_eq!(read(&whole), (2, 1003));
    }

    #[test]
    fn number_stays_finite_and_within_the_limits() {
        let values = Arc::default();
        let scaled = ScaledFloat::new(&values, 1000.0);
        values.set(-2.5);
        values.set(f64::NAN);
        values.add(f64::INFINITY);
        assert_eq!(read(&scaled), (-2500, 0));
        values.set(f64::MAX);
        values.add(f64::MAX);
        assert_eq!(read(&scaled), (i64::MAX, 0));
        values.set(1.0);
        assert_eq!(read(&scaled), (1000, 0));
    }

    #[test]
    fn changes_of_all_threads_are_added() {
        let values = Arc::<FloatValues>::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| values.add_operations(0.25, 1)));
            }
        });
        let scaled = ScaledFloat::new(&values, 1.0);
        assert_eq!(read(&scaled), (10_000, 40_000));
    }
}
