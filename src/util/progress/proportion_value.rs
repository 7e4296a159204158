//! A fraction from 0 to 1 that fits into half of an atomic word.

#[cfg(has_profiler)]
use std::ops::{Add, Mul, Sub};

/// A fraction from 0 to 1.
///
/// Results outside of that range saturate. A fraction of 0 items is *invalid*, and so is every
/// result computed from an invalid value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ProportionValue(u32);

/// The value of 1. A power of two, so that halves are exact.
const WHOLE: u32 = 1 << 31;

impl ProportionValue {
    pub(crate) const ONE: Self = Self(WHOLE);
    pub(crate) const INVALID: Self = Self(u32::MAX);

    pub(crate) const fn from_bits(bits: u32) -> Self {
        if bits <= WHOLE {
            Self(bits)
        } else {
            Self::INVALID
        }
    }

    pub(crate) const fn to_bits(self) -> u32 {
        self.0
    }

    pub(crate) const fn is_valid(self) -> bool {
        self.0 <= WHOLE
    }

    /// Returns the fraction as a number from 0 to 1, or NaN if it is invalid.
    pub(crate) fn to_f64(self) -> f64 {
        if self.is_valid() {
            f64::from(self.0) / f64::from(WHOLE)
        } else {
            f64::NAN
        }
    }
}

#[cfg(has_profiler)]
impl ProportionValue {
    pub(crate) const ZERO: Self = Self(0);

    pub(crate) const fn percent(percent: u32) -> Self {
        if percent >= 100 {
            Self::ONE
        } else {
            Self((WHOLE as u64 * percent as u64 / 100) as u32)
        }
    }

    /// Returns `part / whole`, at most 1. The result is invalid if `whole` is 0.
    pub(crate) fn from_ratio(part: usize, whole: usize) -> Self {
        match (u128::from(WHOLE) * part as u128).checked_div(whole as u128) {
            Some(bits) => Self(bits.min(WHOLE.into()) as u32),
            None => Self::INVALID,
        }
    }

    fn map_valid(self, other: Self, result: impl FnOnce(u32, u32) -> u32) -> Self {
        if self.is_valid() && other.is_valid() {
            Self(result(self.0, other.0))
        } else {
            Self::INVALID
        }
    }
}

#[cfg(has_profiler)]
impl Add for ProportionValue {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.map_valid(other, |one, other| (one + other).min(WHOLE))
    }
}

#[cfg(has_profiler)]
impl Sub for ProportionValue {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.map_valid(other, u32::saturating_sub)
    }
}

/// Returns a fraction of a fraction.
#[cfg(has_profiler)]
impl Mul for ProportionValue {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        self.map_valid(other, |one, other| {
            (u64::from(one) * u64::from(other) / u64::from(WHOLE)) as u32
        })
    }
}

#[cfg(all(test, has_profiler))]
mod tests {
    use super::*;

    const HALF: ProportionValue = ProportionValue::percent(50);
    const QUARTER: ProportionValue = ProportionValue::percent(25);

    #[test]
    fn percent_converts_to_exact_fractions() {
        assert_eq!(
            (
                ProportionValue::ZERO.to_f64(),
                ProportionValue::ONE.to_f64()
            ),
            (0.0, 1.0)
        );
        assert_eq!((HALF.to_f64(), QUARTER.to_f64()), (0.5, 0.25));
        assert!((ProportionValue::percent(1).to_f64() - 0.01).abs() < 1e-9);
        assert_eq!(ProportionValue::percent(0), ProportionValue::ZERO);
        assert_eq!(
            [100, 101, u32::MAX].map(ProportionValue::percent),
            [ProportionValue::ONE; 3]
        );
        assert!(ProportionValue::ZERO < QUARTER && QUARTER < HALF && HALF < ProportionValue::ONE);
    }

    #[test]
    fn from_bits_restores_valid_values_only() {
        for value in [
            ProportionValue::ZERO,
            QUARTER,
            ProportionValue::ONE,
            ProportionValue::INVALID,
        ] {
            assert_eq!(ProportionValue::from_bits(value.to_bits()), value);
        }
        assert_eq!(
            ProportionValue::from_bits(WHOLE + 1),
            ProportionValue::INVALID
        );
        assert!(ProportionValue::ONE.is_valid() && !ProportionValue::INVALID.is_valid());
        assert!(ProportionValue::INVALID.to_f64().is_nan());
    }

    #[test]
    fn from_ratio_stays_in_range() {
        assert_eq!(ProportionValue::from_ratio(0, 7), ProportionValue::ZERO);
        assert_eq!(ProportionValue::from_ratio(7, 7), ProportionValue::ONE);
        assert_eq!(ProportionValue::from_ratio(3, 12), QUARTER);
        assert_eq!(ProportionValue::from_ratio(8, 7), ProportionValue::ONE);
        assert_eq!(
            ProportionValue::from_ratio(usize::MAX, usize::MAX),
            ProportionValue::ONE
        );
        assert_eq!(ProportionValue::from_ratio(0, 0), ProportionValue::INVALID);
    }

    #[test]
    fn arithmetic_saturates_and_propagates_invalid() {
        assert_eq!(QUARTER + QUARTER, HALF);
        assert_eq!(HALF + HALF + QUARTER, ProportionValue::ONE);
        assert_eq!(
            (HALF - QUARTER, QUARTER - HALF),
            (QUARTER, ProportionValue::ZERO)
        );
        assert_eq!((HALF * HALF, HALF * ProportionValue::ONE), (QUARTER, HALF));
        assert_eq!(
            ProportionValue::ONE * ProportionValue::ONE,
            ProportionValue::ONE
        );
        assert_eq!(
            ProportionValue::ONE * ProportionValue::ZERO,
            ProportionValue::ZERO
        );
        let invalid = ProportionValue::INVALID;
        for result in [
            HALF + invalid,
            invalid + HALF,
            invalid - invalid,
            HALF - invalid,
            invalid * HALF,
        ] {
            assert_eq!(result, invalid);
        }
    }
}
