//! Numbers with a unit or an owner: ids, addresses, points in time and session numbers.
//!
//! Runs in the signal handler: the conversion of ids from and to a number. No function here reads a
//! clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(i32);

        serde_as_inner!($name(i32));

        impl $name {
            /// `0`, the id of no process or thread.
            pub const UNSPECIFIED: Self = Self(0);

            /// Creates an id from the kernel's number.
            pub const fn from_number(number: i32) -> Self {
                Self(number)
            }

            /// Returns the kernel's number.
            pub const fn to_number(self) -> i32 {
                self.0
            }

            /// Returns whether the id is not [`UNSPECIFIED`](Self::UNSPECIFIED).
            pub const fn is_specified(self) -> bool {
                self.0 != 0
            }
        }
    };
}

id! {
    /// A process id.
    #[doc(alias = "ProfilerProcessId")]
    #[doc(alias = "BaseProfilerProcessId")]
    ProcessId
}
id! {
    /// The kernel's id of a thread (`gettid` on Linux).
    #[doc(alias = "ProfilerThreadId")]
    #[doc(alias = "BaseProfilerThreadId")]
    ThreadId
}

/// The address of an instruction in this process.
///
/// The innermost frame of a stack holds the instruction that was about to run. Every caller's frame
/// holds a *return address*: the instruction after the call. Look up a return address minus one
/// byte, which lies inside the call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CodeAddress(u64);

impl CodeAddress {
    /// Creates a code address from a number.
    pub const fn new(address: u64) -> Self {
        Self(address)
    }

    /// Returns the address as a number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl std::fmt::Debug for CodeAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// An address on a thread's stack. Stacks grow down, so the greater of two addresses is the older
/// one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct StackAddress(pub(crate) u64);

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

/// The number of a session, unique within the process.
///
/// Comparing generations detects data that was created in an earlier session.
#[doc(alias = "mGeneration")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Generation(u64);

static LAST_GENERATION: AtomicU64 = AtomicU64::new(0);

impl Generation {
    /// Returns a number that no session has used yet.
    pub(crate) fn next() -> Self {
        Self(LAST_GENERATION.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(crate) const fn is_after(self, other: Self) -> bool {
        self.0 > other.0
    }

    /// Returns the number, which is at least 1.
    pub(crate) const fn to_number(self) -> u64 {
        self.0
    }

    /// Restores a generation from the result of [`Self::to_number`].
    pub(crate) const fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// Implements `Serialize` and `Deserialize` for a struct with one unnamed field, as that field.
macro_rules! serde_as_inner {
    ($name:ident($inner:ty)) => {
        #[cfg(feature = "serde")]
        const _: () = {
            impl serde::Serialize for $name {
                #[inline]
                fn serialize<S: serde::Serializer>(
                    &self,
                    serializer: S,
                ) -> Result<S::Ok, S::Error> {
                    serde::Serialize::serialize(&self.0, serializer)
                }
            }

            impl<'de> serde::Deserialize<'de> for $name {
                #[inline]
                fn deserialize<D: serde::Deserializer<'de>>(
                    deserializer: D,
                ) -> Result<Self, D::Error> {
                    <$inner as serde::Deserialize>::deserialize(deserializer).map(Self)
                }
            }
        };
    };
}

/// Implements `Serialize` and `Deserialize` for an enum without fields, as the index of its variant.
macro_rules! serde_as_index {
    ($name:ident { $($variant:ident),+ $(,)? }) => {
        #[cfg(feature = "serde")]
        const _: () = {
            impl serde::Serialize for $name {
                #[inline]
                fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.serialize_u8(*self as u8)
                }
            }

            impl<'de> serde::Deserialize<'de> for $name {
                fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    let index: u8 = serde::Deserialize::deserialize(deserializer)?;
                    $(if index == Self::$variant as u8 {
                        return Ok(Self::$variant);
                    })+
                    Err(serde::de::Error::custom("the index of no variant"))
                }
            }
        };
    };
}

pub(crate) use {serde_as_index, serde_as_inner};

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ProfilerTime, TimeStamp};

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
