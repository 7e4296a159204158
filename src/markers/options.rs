//! What can be said of a marker beside its name and category: when it is, where it is shown, and its stack.

use crate::base::{ProfilerTime, ThreadId};

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
///
/// A time before the process began counts as the moment at which it began. An interval whose end is before its start is
/// recorded so, and the viewer shows it without a length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MarkerTiming {
    pub(crate) phase: MarkerPhase,
    /// `None` where the phase has no start.
    pub(crate) start: Option<ProfilerTime>,
    /// `None` where the phase has no end. An instant or interval without the time it needs gets the moment at which the
    /// marker is added.
    pub(crate) end: Option<ProfilerTime>,
    /// On whose track it is, and in which window. Here, since Mozilla's `MarkerOptions` are made with two fields and no more.
    pub(crate) thread: ThreadId,
    pub(crate) inner_window_id: u64,
}

impl MarkerTiming {
    const fn new(
        phase: MarkerPhase,
        start: Option<ProfilerTime>,
        end: Option<ProfilerTime>,
    ) -> Self {
        Self {
            phase,
            start,
            end,
            thread: ThreadId::UNSPECIFIED,
            inner_window_id: 0,
        }
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

    /// These times on the other's track and in its window.
    #[inline]
    pub(crate) const fn at_place_of(self, other: &Self) -> Self {
        Self {
            thread: other.thread,
            inner_window_id: other.inner_window_id,
            ..self
        }
    }
}

impl Default for MarkerTiming {
    #[inline]
    fn default() -> Self {
        Self::instant_now()
    }
}

/// A [`ProfilerBacktrace`](crate::stack::ProfilerBacktrace) as markers refer to it: `(&backtrace).into()`.
///
/// Making one hands the stack to the running session, once for any number of markers; without a session, nothing. It is known in
/// that session alone, for as long as the buffer reaches back to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MarkerBacktrace(pub(crate) u64);

/// Whether a marker has a stack, and which: it stands in the marker's tooltip as its cause.
///
/// A stack of one's own is copied when the marker is added, by the thread that adds it, and unwound later, by the sampler: about
/// 1 µs, and the copying of the used part of the stack. Nothing is allocated, unless there were more than some
/// dozens within the sampler's interval, or the stack is larger than 16 KiB.
#[doc(alias = "StackCaptureOptions")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MarkerStack {
    /// None.
    #[default]
    NoStack,
    /// Labels, script frames and native frames of the thread that adds the marker.
    Full,
    /// Its labels and script frames.
    NonNative,
    /// One that was captured before: of what caused it, for example.
    #[doc(alias = "UseBacktrace")]
    #[doc(alias = "TakeBacktrace")]
    Backtrace(MarkerBacktrace),
}

impl MarkerStack {
    /// [`Self::Full`] if that is so, else none.
    #[doc(alias = "MaybeCapture")]
    pub const fn maybe_capture(captures: bool) -> Self {
        if captures { Self::Full } else { Self::NoStack }
    }
}

/// What can be said of a marker beside its name and category.
///
/// As in Mozilla's crate it has two fields; what else can be said is said by methods, after these: the track and the window
/// are kept with the timing, and go with it where that is replaced as a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MarkerOptions {
    /// When it is.
    pub timing: MarkerTiming,
    /// Its stack.
    pub stack: MarkerStack,
}

impl MarkerOptions {
    /// The same options with this timing.
    #[must_use]
    #[inline]
    pub fn with_timing(&self, timing: MarkerTiming) -> Self {
        Self {
            timing: timing.at_place_of(&self.timing),
            stack: self.stack,
        }
    }

    /// The same options with this stack.
    #[must_use]
    #[inline]
    pub fn with_stack(&self, stack: MarkerStack) -> Self {
        Self {
            timing: self.timing,
            stack,
        }
    }

    /// The same options for a marker that is shown on this thread's track, whoever adds it;
    /// [`ThreadId::UNSPECIFIED`], the default, is the thread that does.
    ///
    /// It is recorded if that thread's markers are. A stack is that of the thread that adds it. The registry's lock is taken, for
    /// a look at the list of threads, unless it is the calling thread.
    #[doc(alias = "MarkerThreadId")]
    #[must_use]
    #[inline]
    pub fn with_thread_id(&self, thread: ThreadId) -> Self {
        Self {
            timing: MarkerTiming {
                thread,
                ..self.timing
            },
            stack: self.stack,
        }
    }

    /// The same options for a marker that belongs to this page: see
    /// [`profiler_register_page`](crate::process::profiler_register_page). 0, the default, is none.
    #[doc(alias = "MarkerInnerWindowId")]
    #[must_use]
    #[inline]
    pub fn with_inner_window_id(&self, inner_window_id: u64) -> Self {
        Self {
            timing: MarkerTiming {
                inner_window_id,
                ..self.timing
            },
            stack: self.stack,
        }
    }
}

impl From<MarkerTiming> for MarkerOptions {
    #[inline]
    fn from(timing: MarkerTiming) -> Self {
        Self {
            timing,
            ..Self::default()
        }
    }
}

impl From<MarkerStack> for MarkerOptions {
    #[inline]
    fn from(stack: MarkerStack) -> Self {
        Self {
            stack,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_stays_when_something_else_is_said() {
        let now = ProfilerTime::from_monotonic_ns(7);
        let options = MarkerOptions::default()
            .with_thread_id(ThreadId::from_number(5))
            .with_inner_window_id(9)
            .with_stack(MarkerStack::maybe_capture(true))
            .with_timing(MarkerTiming::instant_at(now));
        assert_eq!(
            (
                options.timing.thread.to_number(),
                options.timing.inner_window_id
            ),
            (5, 9)
        );
        assert_eq!(
            (options.timing.start, options.stack),
            (Some(now), MarkerStack::Full)
        );
        let literal = MarkerOptions {
            timing: MarkerTiming::instant_now(),
            ..options
        };
        assert_eq!(
            (literal.timing.thread, literal.stack),
            (ThreadId::UNSPECIFIED, MarkerStack::Full)
        );
    }
}
