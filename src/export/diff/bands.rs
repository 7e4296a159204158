//! The error of a change, and how wide a band must be.

use crate::export::diff::slices::{Observed, SLICES, Slices};

/// A value in two profiles: a function's time divided by the profile's [`Base`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Change {
    pub(super) before: f64,
    pub(super) after: f64,
    /// Standard error of the difference if nothing has changed.
    pub(super) error: f64,
}

impl Change {
    pub(super) fn difference(&self) -> f64 {
        self.after - self.before
    }

    /// Returns the change in errors; 0 without a difference.
    pub(super) fn errors(&self) -> f64 {
        let difference = self.difference().abs();
        // Sums of the same times in another order differ by less.
        if difference <= 1e-9 * self.before.max(self.after) {
            return 0.0;
        }
        difference / self.error.max(f64::MIN_POSITIVE)
    }
}

/// What a function's time is divided by, in one profile.
#[derive(Clone, Debug)]
pub(super) struct Base {
    pub(super) slices: Slices,
    pub(super) sum: f64,
    /// The time that the functions share.
    pub(super) time: f64,
    /// Average weight of a sample: the length of the shortest run.
    pub(super) sample: f64,
}

impl Base {
    /// Returns the base of values that are not divided, and that need no samples.
    pub(super) fn undivided() -> Self {
        Self {
            slices: [1.0 / SLICES as f64; SLICES],
            sum: 1.0,
            time: f64::INFINITY,
            sample: 0.0,
        }
    }

    /// Returns the base without a function's time.
    pub(super) fn without(&self, observed: &Observed) -> Self {
        let slice = |at: usize| (self.slices[at] - observed.slices[at]).max(0.0);
        Self {
            slices: std::array::from_fn(slice),
            sum: self.sum - observed.sum,
            time: self.time - observed.sum,
            sample: self.sample,
        }
    }

    /// Adds a multiple of another base to what a function's time is divided by.
    pub(super) fn plus(&self, other: &Self, factor: f64) -> Self {
        Self {
            slices: std::array::from_fn(|at| self.slices[at] + factor * other.slices[at]),
            sum: self.sum + factor * other.sum,
            ..*self
        }
    }
}

/// Estimates the change of a function, given what its time is divided by in the two profiles.
///
/// `run_to_run` is the standard deviation of a function's cost from run to run, as a share of its
/// cost.
pub(super) fn change(
    (before, before_base): (&Observed, &Base),
    (after, after_base): (&Observed, &Base),
    run_to_run: f64,
) -> Change {
    let value = |observed: &Observed, base: &Base| observed.sum / base.sum;
    let values = (value(before, before_base), value(after, after_base));
    let of_slices = slice_variance(
        (before, before_base, values.0),
        (after, after_base, values.1),
    );

    // Without a change, both have the same value.
    let sum = before.sum + after.sum;
    let pooled = sum / (before_base.sum + after_base.sum);
    let share = (sum / (before_base.time + after_base.time)).min(1.0);
    let sample = before_base.sample.max(after_base.sample);
    let run = match sum > 0.0 {
        true => (before.run_squares + after.run_squares) / sum,
        false => 0.0,
    };
    // Of samples without any correlation, runs of the share's function have this length, too.
    let without_chance = (1.0 - share) * run - share * sample;
    let run = without_chance.max(sample);
    // The clock measures the time that the functions share: a function that has all of it has no
    // error by chance.
    let of_runs = |base: &Base| {
        let left = (1.0 - pooled * base.sum / base.time).max(0.0);
        pooled * left * run / base.sum
    };
    let of_runs = of_runs(before_base) + of_runs(after_base);

    let between_runs = 2.0 * (run_to_run * pooled).powi(2);
    Change {
        before: values.0,
        after: values.1,
        error: (of_slices.max(of_runs) + between_runs).sqrt(),
    }
}

/// Returns the variance of the difference of two ratios, from the differences in each slice.
fn slice_variance(before: (&Observed, &Base, f64), after: (&Observed, &Base, f64)) -> f64 {
    let part = |(observed, base, value): (&Observed, &Base, f64), at: usize| {
        (observed.slices[at] - value * base.slices[at]) / base.sum
    };
    let squares = (0..SLICES).map(|at| (part(after, at) - part(before, at)).powi(2));
    squares.sum::<f64>() * SLICES as f64 / (SLICES - 1) as f64
}

/// Returns by how many errors a change must differ from 0, so that none of `tests` changes does so
/// by chance, with a probability of `false_alarms` that one does.
pub(super) fn critical_errors(false_alarms: f64, tests: usize) -> f64 {
    let tail = (false_alarms / tests.max(1) as f64 / 2.0).clamp(1e-12, 0.5);
    student(normal_quantile(tail), (SLICES - 1) as f64)
}

/// Returns the value that a normal variable exceeds with this probability, with an error below
/// 0.0005 (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.2.23).
fn normal_quantile(tail: f64) -> f64 {
    let t = (-2.0 * tail.ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    t - above / below
}

/// Converts a normal quantile to that of Student's distribution (Abramowitz and Stegun, 26.7.5).
fn student(x: f64, freedom: f64) -> f64 {
    let x2 = x * x;
    let one = x * (x2 + 1.0) / 4.0;
    let two = x * ((5.0 * x2 + 16.0) * x2 + 3.0) / 96.0;
    let three = x * (((3.0 * x2 + 19.0) * x2 + 17.0) * x2 - 15.0) / 384.0;
    x + one / freedom + two / freedom.powi(2) + three / freedom.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (tail, quantile) in [(0.025, 1.959_96), (0.005, 2.575_83), (0.000_05, 3.890_59)] {
            assert!((normal_quantile(tail) - quantile).abs() < 5e-4, "{tail}");
        }
        // Student's distribution with 63 degrees of freedom.
        for (tail, quantile) in [(0.025, 1.998_3), (0.005, 2.656_1)] {
            assert!(
                (student(normal_quantile(tail), 63.0) - quantile).abs() < 1e-3,
                "{tail}"
            );
        }
        assert!(critical_errors(0.01, 100) > critical_errors(0.01, 10));
    }

    fn base(sum: f64) -> Base {
        Base {
            slices: [sum / SLICES as f64; SLICES],
            sum,
            time: sum,
            sample: 1.0,
        }
    }

    /// A function with this many samples in each slice, in runs of this length.
    fn observed(per_slice: f64, run: f64) -> Observed {
        let observed = Observed::exact([per_slice; SLICES]);
        Observed {
            run_squares: observed.sum * run,
            ..observed
        }
    }

    #[test]
    fn longer_runs_and_uneven_slices_widen_the_error() {
        let base = base(6400.0);
        let error =
            |one: &Observed, other: &Observed| change((one, &base), (other, &base), 0.0).error;
        let single = error(&observed(10.0, 1.2), &observed(10.0, 1.2));
        // 640 independent samples of 6,400 in each profile.
        assert!((single - (2.0 * 0.1 * 0.9 / 6400.0_f64).sqrt()).abs() < 1e-9);
        let long = error(&observed(10.0, 20.0), &observed(10.0, 20.0));
        assert!(long > 4.0 * single);
        let mut uneven = observed(10.0, 1.2);
        (0..SLICES).for_each(|at| uneven.slices[at] = if at % 2 == 0 { 20.0 } else { 0.0 });
        assert!(error(&observed(10.0, 1.2), &uneven) > 2.0 * single);
        // Phases that both have at the same times cancel.
        assert_eq!(error(&uneven, &uneven), single);
    }

    #[test]
    fn function_that_one_profile_lacks_has_an_error_in_both() {
        let (few, many) = (base(100.0), base(100_000.0));
        let (missing, present) = (observed(0.0, 0.0), observed(4.6875, 1.0));
        let change = change((&missing, &few), (&present, &many), 0.0);
        // 0.3 % of 100 samples is less than one sample.
        assert!(change.errors() < 1.0, "{change:?}");
    }

    #[test]
    fn function_with_all_of_the_time_has_the_error_of_its_slices_only() {
        let seconds = Base {
            time: 6400.0,
            ..base(64.0)
        };
        let error = |one: &Observed, other: &Observed| {
            change((one, &seconds), (other, &seconds), 0.0).error
        };
        let steady = observed(100.0, 50.0);
        assert_eq!(error(&steady, &steady), 0.0);
        let mut uneven = steady.clone();
        (0..SLICES).for_each(|at| uneven.slices[at] += if at % 2 == 0 { 8.0 } else { -8.0 });
        // A standard deviation of 8 ns per second and slice.
        assert!((error(&steady, &uneven) - (64.0_f64 / 63.0).sqrt()).abs() < 1e-9);
    }
}
