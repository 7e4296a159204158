//! Points in time, in nanoseconds of the monotonic clock. This module reads no clock.

use std::time::Duration;

use crate::types::serde_impls::serde_as_inner;

/// A point in time for markers: nanoseconds of the monotonic clock.
///
/// [`ProfilerTime::now`] reads the clock; the arithmetic saturates at both ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[doc(alias = "TimeStamp")]
pub struct ProfilerTime(u64);

serde_as_inner!(ProfilerTime(u64));

impl ProfilerTime {
    pub(crate) const fn from_monotonic_ns(ns: u64) -> Self {
        Self(ns)
    }

    pub(crate) const fn timestamp(self) -> TimeStamp {
        TimeStamp(self.0)
    }

    /// Returns the time this many microseconds later, or earlier for a negative number. Fractions
    /// count, rounded to ns; NaN counts as 0.
    pub fn add_microseconds(self, microseconds: f64) -> Self {
        self.shifted(microseconds)
    }

    /// Returns the time this many microseconds earlier; see
    /// [`add_microseconds`](Self::add_microseconds).
    pub fn subtract_microseconds(self, microseconds: f64) -> Self {
        self.shifted(-microseconds)
    }

    /// Returns the duration from `earlier` to `self`; zero if `self` is earlier.
    pub const fn duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    fn shifted(self, microseconds: f64) -> Self {
        let ns = (microseconds.abs() * 1000.0).round() as u64;
        Self(if microseconds < 0.0 {
            self.0.saturating_sub(ns)
        } else {
            self.0.saturating_add(ns)
        })
    }
}

/// A point in time for internal use: nanoseconds of the monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct TimeStamp(pub(crate) u64);

impl TimeStamp {
    /// Returns the nanoseconds since `start`; 0 if `self` is earlier.
    pub(crate) const fn since_ns(self, start: TimeStamp) -> u64 {
        self.0.saturating_sub(start.0)
    }

    /// Returns the nanoseconds since `start`, negative if `self` is earlier.
    ///
    /// The result is clamped to ± 73 years, so that callers can add a few results without overflow.
    pub(crate) fn signed_since_ns(self, start: TimeStamp) -> i64 {
        const MAX_NS: i128 = i64::MAX as i128 / 4;
        (i128::from(self.0) - i128::from(start.0)).clamp(-MAX_NS, MAX_NS) as i64
    }

    pub(crate) const fn plus_ns(self, ns: u64) -> TimeStamp {
        TimeStamp(self.0.saturating_add(ns))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::ProfilerTime;
    use super::TimeStamp;

    #[test]
    fn signed_since_ns_is_clamped_at_both_ends() {
        let (one, other) = (TimeStamp(5_000), TimeStamp(7_000));
        assert_eq!(
            (other.signed_since_ns(one), one.signed_since_ns(other)),
            (2_000, -2_000)
        );
        let (first, last) = (TimeStamp(0), TimeStamp(u64::MAX));
        assert_eq!(last.signed_since_ns(first), i64::MAX / 4);
        assert_eq!(first.signed_since_ns(last), -(i64::MAX / 4));
    }

    #[test]
    fn microseconds_are_added_and_subtracted_with_saturation() {
        let start = ProfilerTime::from_monotonic_ns(5_000);
        assert_eq!(
            start.add_microseconds(1.5),
            ProfilerTime::from_monotonic_ns(6_500)
        );
        assert_eq!(
            start.subtract_microseconds(2.0),
            ProfilerTime::from_monotonic_ns(3_000)
        );
        assert_eq!(
            start.subtract_microseconds(1e9),
            ProfilerTime::from_monotonic_ns(0)
        );
        assert_eq!(start.add_microseconds(f64::NAN), start);
        let later = start.add_microseconds(1.5);
        assert_eq!(later.duration_since(start), Duration::from_nanos(1_500));
        assert_eq!(start.duration_since(later), Duration::ZERO);
    }
}
