//! How a marker's times are to be interpreted.

/// What a marker says about time. The numbers are Gecko's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum MarkerPhase {
    Instant = 0,
    Interval = 1,
    /// The beginning of an interval, whose end is another marker.
    IntervalStart = 2,
    IntervalEnd = 3,
}
