//! A fraction of a whole, in a number that an atomic holds.

#[cfg(has_profiler)]
use std::ops::{Add, Mul, Sub};

/// From nothing to the whole. What leaves that range stays at its end; what makes no sense is *invalid*, and so is all that
/// is made of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ProportionValue(u32);

/// A power of two, so that halves stay exact.
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

    /// From 0 to 1; NaN when it is invalid.
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

    /// So much of the whole; of nothing, invalid.
    pub(crate) fn from_ratio(part: usize, whole: usize) -> Self {
        match (u128::from(WHOLE) * part as u128).checked_div(whole as u128) {
            Some(bits) => Self(bits.min(WHOLE.into()) as u32),
            None => Self::INVALID,
        }
    }

    fn of_valid(self, other: Self, result: impl FnOnce(u32, u32) -> u32) -> Self {
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
        self.of_valid(other, |one, other| (one + other).min(WHOLE))
    }
}

#[cfg(has_profiler)]
impl Sub for ProportionValue {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.of_valid(other, u32::saturating_sub)
    }
}

/// The part of a part.
#[cfg(has_profiler)]
impl Mul for ProportionValue {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        self.of_valid(other, |one, other| {
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
    fn the_ends_and_what_lies_between_are_what_they_say() {
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
    fn bits_read_back_and_others_are_invalid() {
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
    fn ratios_stay_in_range() {
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
    fn arithmetic_saturates_and_the_invalid_stays_so() {
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
        for made in [
            HALF + invalid,
            invalid + HALF,
            invalid - invalid,
            HALF - invalid,
            invalid * HALF,
        ] {
            assert_eq!(made, invalid);
        }
    }
}
