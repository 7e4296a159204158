//! Encodes a marker into the buffer.

use serde::Serialize;

use crate::buffer::{Entry, EntryCursor, EntryKind, large_bytes, number_bytes};
use crate::markers::codec::payload::{payload_bytes, write_payload};
use crate::markers::codec::type_registry::MarkerType;
use crate::markers::options::MarkerTiming;
use crate::markers::profiler_marker::ProfilerMarker;
use crate::types::{Generation, MarkerPhase, ProfilerTime, TimeStamp};

/// Bits of the flags byte of an entry: the phase, the kind of payload, and which optional fields
/// follow.
pub(crate) const PHASE_BITS: u8 = 3;
pub(crate) const PAYLOAD_TEXT: u8 = 1 << 2;
pub(crate) const PAYLOAD_TYPED: u8 = 2 << 2;
pub(crate) const PAYLOAD_BITS: u8 = 3 << 2;
pub(crate) const HAS_STACK: u8 = 1 << 4;
pub(crate) const HAS_WINDOW: u8 = 1 << 5;

/// The byte that follows a complete typed payload; an incomplete one is followed by 0.
pub(crate) const PAYLOAD_COMPLETE: u8 = 1;

/// The payload of a marker that is being added.
pub(crate) trait NewPayload: Copy {
    /// The payload's bits in the flags byte.
    const KIND: u8;

    /// Whether the encoded length is cheap to compute.
    const HAS_CHEAP_LENGTH: bool = true;

    /// Returns the number of the payload's type, if it has one.
    fn type_number(&self) -> Option<u64> {
        None
    }

    /// Returns the length of the encoded payload, in bytes.
    fn bytes(&self) -> usize;

    fn write(&self, out: &mut EntryCursor<'_>);
}

/// No payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoPayload;

impl NewPayload for NoPayload {
    const KIND: u8 = 0;

    #[inline(always)]
    fn bytes(&self) -> usize {
        0
    }

    #[inline(always)]
    fn write(&self, _: &mut EntryCursor<'_>) {}
}

/// A text as payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextPayload<'a>(pub(crate) &'a str);

impl NewPayload for TextPayload<'_> {
    const KIND: u8 = PAYLOAD_TEXT;

    #[inline(always)]
    fn bytes(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn write(&self, out: &mut EntryCursor<'_>) {
        out.raw(self.0.as_bytes());
    }
}

/// A payload of a type that the application defines.
#[derive(Debug)]
pub(crate) struct TypedPayload<'a, T> {
    payload: &'a T,
    number: u64,
}

impl<T> Clone for TypedPayload<'_, T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for TypedPayload<'_, T> {}

impl<'a, T: ProfilerMarker + 'static> TypedPayload<'a, T> {
    #[inline(always)]
    pub(crate) fn new(payload: &'a T) -> Self {
        Self {
            payload,
            number: MarkerType::number_of::<T>().into(),
        }
    }
}

impl<'a, T: Serialize> TypedPayload<'a, T> {
    /// Creates a payload of type `M` from borrowed data, which must be serialized as an `M` is.
    pub(crate) fn borrowed<M: ProfilerMarker + 'static>(payload: &'a T) -> Self {
        Self {
            payload,
            number: MarkerType::number_of::<M>().into(),
        }
    }
}

#[cfg(test)]
impl<T> TypedPayload<'_, T> {
    /// Replaces the number of the payload's type.
    pub(crate) fn with_number(self, number: u64) -> Self {
        Self { number, ..self }
    }
}

impl<T: Serialize> NewPayload for TypedPayload<'_, T> {
    const KIND: u8 = PAYLOAD_TYPED;
    const HAS_CHEAP_LENGTH: bool = false;

    #[inline(always)]
    fn type_number(&self) -> Option<u64> {
        Some(self.number)
    }

    fn bytes(&self) -> usize {
        payload_bytes(self.payload) + 1
    }

    #[inline(always)]
    fn write(&self, out: &mut EntryCursor<'_>) {
        let is_complete = write_payload(self.payload, out);
        out.byte(if is_complete { PAYLOAD_COMPLETE } else { 0 });
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
    /// The marker's rarity, if that is decided: it stands for two to the power of that many.
    pub(crate) rarity: Option<u8>,
}

/// A marker as an entry of the buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MarkerEntry<'a, P> {
    name: &'a str,
    category: u8,
    rarity: u8,
    /// Phase, kind of payload, and which optional fields follow.
    flags: u8,
    thread: u64,
    start_ns: u64,
    end_ns: u64,
    stack: u64,
    inner_window_id: u64,
    payload: P,
    is_short: bool,
}

/// Limit below which a time fits in six bytes, in ns: three days.
pub(crate) const SHORT_TIME_LIMIT: u64 = 1 << 48;
/// Limit below which a number fits in one byte of LEB128.
pub(crate) const SHORT_NUMBER_LIMIT: u64 = 1 << 7;

impl<'a, P: NewPayload> MarkerEntry<'a, P> {
    /// Creates an entry whose times count from `process_start`.
    #[inline(always)]
    pub(crate) fn new(
        destination: &MarkerDestination,
        process_start: TimeStamp,
        marker: &NewMarker<'a>,
        payload: P,
    ) -> Self {
        let &NewMarker {
            name,
            category,
            timing,
            stack,
        } = marker;
        let inner_window_id = timing.inner_window_id;
        let or_now =
            |time: Option<ProfilerTime>| time.map_or(destination.now, ProfilerTime::timestamp);
        let (start, end) = match timing.phase {
            MarkerPhase::Instant | MarkerPhase::IntervalStart => {
                (or_now(timing.start), process_start)
            }
            MarkerPhase::Interval => (or_now(timing.start), or_now(timing.end)),
            MarkerPhase::IntervalEnd => (process_start, or_now(timing.end)),
        };
        let (start_ns, end_ns) = (start.since_ns(process_start), end.since_ns(process_start));
        let thread = destination.thread;
        let numbers = thread | name.len() as u64 | payload.type_number().unwrap_or(0);
        let is_short = numbers < SHORT_NUMBER_LIMIT
            && start_ns | end_ns < SHORT_TIME_LIMIT
            && stack | inner_window_id == 0;
        let has_stack = if stack == 0 { 0 } else { HAS_STACK };
        let has_window = if inner_window_id == 0 { 0 } else { HAS_WINDOW };
        let flags = timing.phase as u8 | P::KIND | has_stack | has_window;
        Self {
            name,
            category,
            rarity: destination.rarity.unwrap_or(0),
            flags,
            thread,
            start_ns,
            end_ns,
            stack,
            inner_window_id,
            payload,
            is_short,
        }
    }

    /// Returns the length of a short head, in bytes.
    #[inline(always)]
    fn short_head_bytes(&self) -> usize {
        let times = if self.end_ns == 0 { 8 } else { 14 };
        6 + times + usize::from(P::KIND == PAYLOAD_TYPED)
    }

    /// Writes everything before the name. All fields but the times take one byte, so that the
    /// compiler assembles the head in registers.
    #[inline(always)]
    fn write_short_head(&self, out: &mut EntryCursor<'_>) {
        let Self {
            name,
            flags,
            thread,
            start_ns,
            end_ns,
            payload,
            category,
            rarity,
            ..
        } = self;
        let bytes = |bytes: [u8; 8]| u64::from_le_bytes(bytes);
        let begin = bytes([
            EntryKind::Marker as u8,
            *thread as u8,
            *flags,
            6,
            0,
            0,
            0,
            0,
        ]);
        let type_number = payload.type_number().unwrap_or(0) as u8;
        let rest = bytes([
            *category,
            *rarity,
            name.len() as u8,
            type_number,
            0,
            0,
            0,
            0,
        ]);
        out.array((begin | start_ns << 32).to_le_bytes());
        let (start_high, is_typed) = (start_ns >> 32, P::KIND == PAYLOAD_TYPED);
        if *end_ns == 0 {
            let last = (start_high | rest << 24).to_le_bytes();
            let [a, b, c, d, e, f, ..] = last;
            if is_typed {
                out.array([a, b, c, d, e, f, last[6]])
            } else {
                out.array([a, b, c, d, e, f])
            }
        } else {
            out.array((start_high | 6 << 16 | end_ns << 24).to_le_bytes());
            let [a, b, c, d, e, ..] = (end_ns >> 40 | rest << 8).to_le_bytes();
            if is_typed {
                out.array([a, b, c, d, e])
            } else {
                out.array([a, b, c, d])
            }
        }
    }

    #[cold]
    fn head_bytes(self) -> usize {
        let Self {
            name,
            thread,
            start_ns,
            end_ns,
            stack,
            inner_window_id,
            payload,
            ..
        } = self;
        // Kind, flags, category and rarity take one byte each.
        4 + number_bytes(thread)
            + large_bytes(start_ns)
            + large_bytes(end_ns)
            + if stack == 0 { 0 } else { number_bytes(stack) }
            + if inner_window_id == 0 {
                0
            } else {
                number_bytes(inner_window_id)
            }
            + number_bytes(name.len() as u64)
            + payload.type_number().map_or(0, number_bytes)
    }

    /// Writes a head of any length. Takes and returns the cursor by value, so that callers with a
    /// short head can keep it in registers.
    #[cold]
    fn write_head<'o>(self, mut out: EntryCursor<'o>) -> EntryCursor<'o> {
        let Self {
            name,
            flags,
            thread,
            start_ns,
            end_ns,
            stack,
            inner_window_id,
            payload,
            category,
            rarity,
            ..
        } = self;
        out.byte(EntryKind::Marker as u8);
        out.number(thread);
        out.byte(flags);
        out.large(start_ns);
        out.large(end_ns);
        out.byte(category);
        out.byte(rarity);
        if stack != 0 {
            out.number(stack);
        }
        if inner_window_id != 0 {
            out.number(inner_window_id);
        }
        out.number(name.len() as u64);
        payload
            .type_number()
            .into_iter()
            .for_each(|number| out.number(number));
        out
    }
}

impl<P: NewPayload> Entry for MarkerEntry<'_, P> {
    const HAS_CHEAP_LENGTH: bool = P::HAS_CHEAP_LENGTH;

    #[inline(always)]
    fn bytes(&self) -> usize {
        let head_bytes = if self.is_short {
            self.short_head_bytes()
        } else {
            Self::clone(self).head_bytes()
        };
        head_bytes + self.name.len() + self.payload.bytes()
    }

    #[inline(always)]
    fn write(&self, out: &mut EntryCursor<'_>) {
        if self.is_short {
            self.write_short_head(out);
        } else {
            *out = Self::clone(self).write_head(out.take());
        }
        out.raw(self.name.as_bytes());
        self.payload.write(out);
    }
}
