//! A marker's options besides its name and category: timing, track and stack.

use crate::types::{Generation, MarkerPhase, ProfilerTime, ThreadId, TimeStamp};

/// When a marker happened. The default is the instant at which it is added.
///
/// A time before the process started is recorded as the process start. An interval that ends before
/// it starts is recorded as given, and the viewer shows it with no length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MarkerTiming {
    pub(crate) phase: MarkerPhase,
    /// Start of the marker; `None` if the phase has no start.
    pub(crate) start: Option<ProfilerTime>,
    /// End of the marker; `None` if the phase has no end. A time that the phase needs but that is
    /// `None` becomes the time at which the marker is added.
    pub(crate) end: Option<ProfilerTime>,
    /// The thread whose track shows the marker. It is stored here, like the page's id, because
    /// source compatibility with Mozilla's crate leaves `MarkerOptions` only two fields.
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

    /// Creates an instant at this time.
    pub const fn instant_at(time: ProfilerTime) -> Self {
        Self::new(MarkerPhase::Instant, Some(time), None)
    }

    /// Creates an instant at the time at which the marker is added.
    pub const fn instant_now() -> Self {
        Self::new(MarkerPhase::Instant, None, None)
    }

    /// Creates an interval between two times.
    pub const fn interval(start: ProfilerTime, end: ProfilerTime) -> Self {
        Self::new(MarkerPhase::Interval, Some(start), Some(end))
    }

    /// Creates an interval from `start` until the marker is added.
    pub const fn interval_until_now_from(start: ProfilerTime) -> Self {
        Self::new(MarkerPhase::Interval, Some(start), None)
    }

    /// Creates the start of an interval, which a marker of the same name with
    /// [`Self::interval_end`] ends.
    pub const fn interval_start(time: ProfilerTime) -> Self {
        Self::new(MarkerPhase::IntervalStart, Some(time), None)
    }

    /// Creates the end of an interval that a marker of the same name started.
    pub const fn interval_end(time: ProfilerTime) -> Self {
        Self::new(MarkerPhase::IntervalEnd, None, Some(time))
    }
}

impl Default for MarkerTiming {
    #[inline]
    fn default() -> Self {
        Self::instant_now()
    }
}

/// A reference to a [`ProfilerBacktrace`](crate::stack::ProfilerBacktrace) for use in markers:
/// `(&backtrace).into()`. [`Self::from_return_addresses`] makes one from a stack that the
/// application collected itself.
///
/// The conversion hands the stack to the running session, and any number of markers can refer to
/// it. Without a session the reference is empty. It is valid only in that session, and only while
/// the buffer still contains the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MarkerBacktrace(pub(crate) u64);

/// The stack of a marker, or none. The marker's tooltip shows the stack as the marker's cause.
///
/// For [`Self::Full`] and [`Self::NonNative`], the thread that adds the marker copies its stack,
/// which takes about 1 µs plus the time to copy the used part of the stack. The sampler unwinds the
/// copy later. Copying allocates memory only for a stack larger than 16 KiB, or when more than some
/// dozens of stacks are captured within a sampling interval.
#[doc(alias = "StackCaptureOptions")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MarkerStack {
    /// No stack.
    #[default]
    NoStack,
    /// Labels, script frames and native frames of the thread that adds the marker.
    Full,
    /// Labels and script frames of the thread that adds the marker.
    NonNative,
    /// A stack that was captured earlier: of the marker's cause, for example.
    #[doc(alias = "UseBacktrace")]
    #[doc(alias = "TakeBacktrace")]
    Backtrace(MarkerBacktrace),
}

impl MarkerStack {
    /// Returns [`Self::Full`] if `captures` is true, and [`Self::NoStack`] otherwise.
    #[doc(alias = "MaybeCapture")]
    pub const fn maybe_capture(captures: bool) -> Self {
        if captures { Self::Full } else { Self::NoStack }
    }
}

/// A marker's options besides its name and category.
///
/// As in Mozilla's crate, this struct has two fields. The methods set further options, and must be
/// called last: the track and the page are stored in the timing, so assigning the field `timing`
/// resets them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MarkerOptions {
    /// When the marker happened.
    pub timing: MarkerTiming,
    /// The marker's stack.
    pub stack: MarkerStack,
}

impl MarkerOptions {
    /// Replaces the timing, and keeps the track and the page.
    #[must_use]
    #[inline]
    pub fn with_timing(&self, timing: MarkerTiming) -> Self {
        let timing = MarkerTiming {
            thread: self.timing.thread,
            inner_window_id: self.timing.inner_window_id,
            ..timing
        };
        Self { timing, ..*self }
    }

    /// Replaces the stack.
    #[must_use]
    #[inline]
    pub fn with_stack(&self, stack: MarkerStack) -> Self {
        Self { stack, ..*self }
    }

    /// Shows the marker on this thread's track; [`ThreadId::UNSPECIFIED`], the default, is the
    /// thread that adds the marker.
    ///
    /// The marker is recorded if markers of that thread are recorded. Its stack is still taken from
    /// the thread that adds it. Unless `thread` is the calling thread, adding the marker takes the
    /// registry's lock to look up the thread.
    #[doc(alias = "MarkerThreadId")]
    #[must_use]
    #[inline]
    pub fn with_thread_id(&self, thread: ThreadId) -> Self {
        let mut options = *self;
        options.timing.thread = thread;
        options
    }

    /// Assigns the marker to a page of
    /// [`profiler_register_page`](crate::process::profiler_register_page); the default, 0, means no
    /// page.
    #[doc(alias = "MarkerInnerWindowId")]
    #[must_use]
    #[inline]
    pub fn with_inner_window_id(&self, inner_window_id: u64) -> Self {
        let mut options = *self;
        options.timing.inner_window_id = inner_window_id;
        options
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

/// A marker that is being added, without its payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewMarker<'a> {
    pub(crate) name: &'a str,
    /// Index of the category.
    pub(crate) category: u8,
    pub(crate) timing: &'a MarkerTiming,
    /// Number of the marker's stack; 0 if it has none.
    pub(crate) stack: u64,
}

/// The session and thread that a marker is recorded for, and the time at which they were
/// determined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MarkerDestination {
    pub(crate) session: Generation,
    /// Registration number of the thread whose track shows the marker.
    pub(crate) thread: u64,
    /// The time used for each time that the caller left unset.
    pub(crate) now: TimeStamp,
    /// The marker's rarity, if it is decided: the marker represents two to the power of the rarity.
    pub(crate) rarity: Option<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_set_by_methods_keep_earlier_options() {
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
