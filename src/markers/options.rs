//! When a marker is: at an instant, over an interval, or one end of an interval.

use crate::base::ProfilerTime;

/// How a marker's times are to be read, with Gecko's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum MarkerPhase {
    Instant = 0,
    Interval = 1,
    IntervalStart = 2,
    IntervalEnd = 3,
}

/// When a marker is. The default is the instant at which it is added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MarkerTiming {
    pub(crate) phase: MarkerPhase,
    /// `None` where the phase has no start.
    pub(crate) start: Option<ProfilerTime>,
    /// `None` where the phase has no end. An instant or interval without the time it needs gets the moment at which the
    /// marker is added.
    pub(crate) end: Option<ProfilerTime>,
}

impl MarkerTiming {
    const fn new(phase: MarkerPhase, start: Option<ProfilerTime>, end: Option<ProfilerTime>) -> Self {
        Self { phase, start, end }
    }

    /// At this instant.
    pub const fn instant_at(time: ProfilerTime) -> Self {
        Self::new(MarkerPhase::Instant, Some(time), None)
    }

    /// At the instant at which the marker is added.
    pub const fn instant_now() -> Self {
        Self::new(MarkerPhase::Instant, None, None)
    }

    /// From one time to another.
    pub const fn interval(start: ProfilerTime, end: ProfilerTime) -> Self {
        Self::new(MarkerPhase::Interval, Some(start), Some(end))
    }

    /// From this time until the marker is added.
    pub const fn interval_until_now_from(start: ProfilerTime) -> Self {
        Self::new(MarkerPhase::Interval, Some(start), None)
    }

    /// The beginning of an interval; a marker of the same name with [`Self::interval_end`] ends it.
    pub const fn interval_start(time: ProfilerTime) -> Self {
        Self::new(MarkerPhase::IntervalStart, Some(time), None)
    }

    /// The end of an interval that a marker of the same name has begun.
    pub const fn interval_end(time: ProfilerTime) -> Self {
        Self::new(MarkerPhase::IntervalEnd, None, Some(time))
    }
}

impl Default for MarkerTiming {
    fn default() -> Self {
        Self::instant_now()
    }
}

/// What can be said of a marker beside its name and category.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MarkerOptions {
    /// When it is.
    pub timing: MarkerTiming,
}

impl MarkerOptions {
    /// The same options with this timing.
    #[must_use]
    pub fn with_timing(&self, timing: MarkerTiming) -> Self {
        let mut options = *self;
        options.timing = timing;
        options
    }
}

impl From<MarkerTiming> for MarkerOptions {
    fn from(timing: MarkerTiming) -> Self {
        Self { timing }
    }
}
