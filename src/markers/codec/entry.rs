//! A marker as an entry of the buffer: encoded by the thread that adds it, decoded for a profile.

use serde::Serialize;

use crate::buffer::{Entry, EntryCursor, EntryKind, EntryReader, large_bytes, number_bytes};
use crate::markers::codec::payload::{payload_bytes, write_payload};
use crate::markers::codec::type_registry::MarkerType;
use crate::markers::options::{MarkerDestination, NewMarker};
use crate::markers::profiler_marker::ProfilerMarker;
use crate::types::{MarkerPhase, ProfilerTime, TimeStamp};

/// Bits of the flags byte of an entry: the phase, the kind of payload, and which optional fields
/// follow.
const PHASE_BITS: u8 = 3;
const PAYLOAD_TEXT: u8 = 1 << 2;
const PAYLOAD_TYPED: u8 = 2 << 2;
const PAYLOAD_BITS: u8 = 3 << 2;
const HAS_STACK: u8 = 1 << 4;
const HAS_WINDOW: u8 = 1 << 5;

/// The byte that follows a complete typed payload; an incomplete one is followed by 0.
const PAYLOAD_COMPLETE: u8 = 1;

/// Limit below which a time fits in six bytes, in ns: three days.
const SHORT_TIME_LIMIT: u64 = 1 << 48;
/// Limit below which a number fits in one byte of LEB128.
const SHORT_NUMBER_LIMIT: u64 = 1 << 7;
/// Only a damaged buffer has a higher rarity.
const MAX_RARITY: u8 = 62;

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
        Self::borrowed::<T>(payload)
    }
}

impl<'a, T: Serialize> TypedPayload<'a, T> {
    /// Creates a payload of type `M` from borrowed data, which must be serialized as an `M` is.
    #[inline(always)]
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
        let bytes = |bytes: [u8; 4]| u64::from(u32::from_le_bytes(bytes));
        let begin = bytes([EntryKind::Marker as u8, self.thread as u8, self.flags, 6]);
        let type_number = self.payload.type_number().unwrap_or(0) as u8;
        let name_bytes = self.name.len() as u8;
        let rest = bytes([self.category, self.rarity, name_bytes, type_number]);
        out.array((begin | self.start_ns << 32).to_le_bytes());
        let (start_high, is_typed) = (self.start_ns >> 32, P::KIND == PAYLOAD_TYPED);
        if self.end_ns == 0 {
            let last = (start_high | rest << 24).to_le_bytes();
            let [a, b, c, d, e, f, ..] = last;
            if is_typed {
                out.array([a, b, c, d, e, f, last[6]])
            } else {
                out.array([a, b, c, d, e, f])
            }
        } else {
            out.array((start_high | 6 << 16 | self.end_ns << 24).to_le_bytes());
            let [a, b, c, d, e, ..] = (self.end_ns >> 40 | rest << 8).to_le_bytes();
            if is_typed {
                out.array([a, b, c, d, e])
            } else {
                out.array([a, b, c, d])
            }
        }
    }

    #[cold]
    fn head_bytes(self) -> usize {
        let bytes_unless_0 = |number| if number == 0 { 0 } else { number_bytes(number) };
        // Kind, flags, category and rarity take one byte each.
        4 + number_bytes(self.thread)
            + large_bytes(self.start_ns)
            + large_bytes(self.end_ns)
            + bytes_unless_0(self.stack)
            + bytes_unless_0(self.inner_window_id)
            + number_bytes(self.name.len() as u64)
            + self.payload.type_number().map_or(0, number_bytes)
    }

    /// Writes a head of any length. Takes and returns the cursor by value, so that callers with a
    /// short head can keep it in registers.
    #[cold]
    fn write_head<'o>(self, mut out: EntryCursor<'o>) -> EntryCursor<'o> {
        out.byte(EntryKind::Marker as u8);
        out.number(self.thread);
        out.byte(self.flags);
        out.large(self.start_ns);
        out.large(self.end_ns);
        out.byte(self.category);
        out.byte(self.rarity);
        if self.stack != 0 {
            out.number(self.stack);
        }
        if self.inner_window_id != 0 {
            out.number(self.inner_window_id);
        }
        out.number(self.name.len() as u64);
        if let Some(number) = self.payload.type_number() {
            out.number(number);
        }
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

/// The payload of a decoded marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DecodedPayload<'a> {
    None,
    /// Text that may not be UTF-8.
    Text(&'a [u8]),
    Typed {
        /// Number of the payload's type.
        number: u64,
        /// `None` if serialization failed.
        bytes: Option<&'a [u8]>,
    },
}

/// A marker as it was added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DecodedMarker<'a> {
    pub(crate) thread: u64,
    pub(crate) phase: MarkerPhase,
    /// Start in ns since the process started; 0 if the phase has no start.
    pub(crate) start_ns: u64,
    /// End in ns since the process started; 0 if the phase has no end.
    pub(crate) end_ns: u64,
    pub(crate) category: u8,
    /// The number of markers that this one represents, including itself: the others were left out.
    pub(crate) stands_for: u64,
    /// Number of the marker's stack; 0 if it has none.
    pub(crate) stack: u64,
    /// Id of the marker's page; 0 if it has none.
    pub(crate) inner_window_id: u64,
    /// Text that may not be UTF-8.
    pub(crate) name: &'a [u8],
    pub(crate) payload: DecodedPayload<'a>,
}

impl<'a> DecodedMarker<'a> {
    /// Decodes the marker of an entry whose kind was read already; `None` if the entry is
    /// malformed.
    pub(crate) fn read(entry: &mut EntryReader<'a>) -> Option<Self> {
        let thread = entry.number()?;
        let flags = entry.byte()?;
        let phase = match flags & PHASE_BITS {
            0 => MarkerPhase::Instant,
            1 => MarkerPhase::Interval,
            2 => MarkerPhase::IntervalStart,
            _ => MarkerPhase::IntervalEnd,
        };
        if flags & !(PHASE_BITS | PAYLOAD_BITS | HAS_STACK | HAS_WINDOW) != 0 {
            return None;
        }
        let (start_ns, end_ns) = (entry.large()?, entry.large()?);
        let category = entry.byte()?;
        let stands_for = 1 << entry.byte()?.min(MAX_RARITY);
        let mut number_if = |is_there: bool| match is_there {
            true => entry.number(),
            false => Some(0),
        };
        let stack = number_if(flags & HAS_STACK != 0)?;
        let inner_window_id = number_if(flags & HAS_WINDOW != 0)?;
        let name_bytes = number_if(true)?;
        let payload_bits = flags & PAYLOAD_BITS;
        let number = number_if(payload_bits == PAYLOAD_TYPED)?;
        let name = entry.bytes(name_bytes)?;
        let payload = match payload_bits {
            0 => DecodedPayload::None,
            PAYLOAD_TEXT => DecodedPayload::Text(entry.rest()),
            PAYLOAD_TYPED => {
                let (is_complete, bytes) = entry.rest().split_last()?;
                DecodedPayload::Typed {
                    number,
                    bytes: (*is_complete == PAYLOAD_COMPLETE).then_some(bytes),
                }
            }
            _ => return None,
        };
        Some(Self {
            thread,
            phase,
            start_ns,
            end_ns,
            category,
            stands_for,
            stack,
            inner_window_id,
            name,
            payload,
        })
    }

    /// Returns whether the marker has user data apart from its payload: a stack, a page, or other
    /// markers that it represents.
    pub(crate) fn has_user_data(&self) -> bool {
        self.stack != 0 || self.inner_window_id != 0 || self.stands_for > 1
    }

    /// Returns the latest time that the marker refers to, in ns since the process started.
    pub(crate) fn last_ns(&self) -> u64 {
        match self.phase {
            MarkerPhase::Instant | MarkerPhase::IntervalStart => self.start_ns,
            MarkerPhase::Interval | MarkerPhase::IntervalEnd => self.end_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::buffer::ChunkedBuffer;
    use crate::json::{JsonWriter, UniqueStrings};
    use crate::markers::codec::payload::{PayloadFailure, PropertyWriter};
    use crate::markers::json_writer::JSONWriter;
    use crate::markers::options::MarkerTiming;
    use crate::markers::schema::MarkerSchema;
    use crate::types::ProfilingCategoryPair;

    /// Adds a marker and passes the decoded marker to `check`.
    fn put_and_read(
        marker: &NewMarker<'_>,
        payload: &impl NewPayload,
        check: impl FnOnce(DecodedMarker<'_>),
    ) {
        let buffer = ChunkedBuffer::for_test(1 << 20);
        let session = ChunkedBuffer::TEST_SESSION;
        let destination = MarkerDestination {
            session,
            thread: 3,
            now: TimeStamp(1000),
            rarity: None,
        };
        let entry = MarkerEntry::new(&destination, TimeStamp(100), marker, *payload);
        assert!(
            buffer
                .take_lane()
                .put(session, destination.now, &entry)
                .is_some()
        );
        let snapshot = buffer.snapshot();
        let mut blocks = snapshot.chunks().flatten();
        let mut entry = blocks.next().expect("an entry").expect("well formed").entry;
        assert_eq!(entry.kind(), Some(EntryKind::Marker));
        check(DecodedMarker::read(&mut entry).expect("well formed"));
        assert!(entry.byte().is_none() && blocks.next().is_none());
    }

    fn new_marker(timing: &MarkerTiming) -> NewMarker<'_> {
        NewMarker {
            name: "name µ",
            category: ProfilingCategoryPair::Network(None).indices().0,
            timing,
            stack: 0,
        }
    }

    #[test]
    fn marker_of_each_phase_reads_back_with_its_times() {
        let time = ProfilerTime::from_monotonic_ns;
        let cases = [
            (MarkerTiming::instant_now(), (MarkerPhase::Instant, 900, 0)),
            (
                MarkerTiming::instant_at(time(150)),
                (MarkerPhase::Instant, 50, 0),
            ),
            (
                MarkerTiming::interval(time(200), time(300)),
                (MarkerPhase::Interval, 100, 200),
            ),
            (
                MarkerTiming::interval_until_now_from(time(200)),
                (MarkerPhase::Interval, 100, 900),
            ),
            (
                MarkerTiming::interval_start(time(200)),
                (MarkerPhase::IntervalStart, 100, 0),
            ),
            (
                MarkerTiming::interval_end(time(200)),
                (MarkerPhase::IntervalEnd, 0, 100),
            ),
        ];
        for (timing, (phase, start_ns, end_ns)) in cases {
            for (stack, window) in [(0, 0), (1, 0), (0, 7), (u64::MAX, u64::MAX)] {
                let timing = MarkerTiming {
                    inner_window_id: window,
                    ..timing
                };
                let marker = NewMarker {
                    stack,
                    ..new_marker(&timing)
                };
                let expected = |payload: DecodedPayload<'static>| DecodedMarker {
                    thread: 3,
                    phase,
                    start_ns,
                    end_ns,
                    category: 6,
                    stands_for: 1,
                    stack,
                    inner_window_id: window,
                    name: "name µ".as_bytes(),
                    payload,
                };
                let text = b"text";
                put_and_read(&marker, &TextPayload("text"), |read| {
                    assert_eq!(read, expected(DecodedPayload::Text(text)));
                });
                put_and_read(&marker, &NoPayload, |read| {
                    assert_eq!(read, expected(DecodedPayload::None))
                });
            }
        }
    }

    #[test]
    fn marker_with_fields_of_any_length_reads_back() {
        let process_start = TimeStamp(100);
        let tricky = Tricky(7, "x".to_owned());
        let numbers = [1, SHORT_NUMBER_LIMIT - 1, SHORT_NUMBER_LIMIT, u64::MAX];
        let times = [0, 1, SHORT_TIME_LIMIT - 1, SHORT_TIME_LIMIT, u64::MAX >> 1];
        for (thread, number) in numbers
            .iter()
            .flat_map(|&thread| numbers.map(|number| (thread, number)))
        {
            for (start_ns, end_ns) in times
                .iter()
                .flat_map(|&start| times.map(|end| (start, end)))
            {
                for name in [
                    "",
                    "n",
                    &"n".repeat(SHORT_NUMBER_LIMIT as usize - 1),
                    &"n".repeat(300),
                ] {
                    let time = |ns| ProfilerTime::from_monotonic_ns(process_start.0 + ns);
                    let timing = MarkerTiming::interval(time(start_ns), time(end_ns));
                    let category = ProfilingCategoryPair::Network(None).indices().0;
                    let marker = NewMarker {
                        name,
                        category,
                        timing: &timing,
                        stack: 0,
                    };
                    let destination = MarkerDestination {
                        session: ChunkedBuffer::TEST_SESSION,
                        thread,
                        now: process_start,
                        rarity: None,
                    };
                    let payload = TypedPayload::new(&tricky).with_number(number);
                    let entry = MarkerEntry::new(&destination, process_start, &marker, payload);
                    let mut bytes = vec![0; Entry::bytes(&entry)];
                    entry.write(&mut EntryCursor::new(&mut bytes));
                    let mut reader = EntryReader::new(&bytes);
                    assert_eq!(reader.kind(), Some(EntryKind::Marker));
                    let read = DecodedMarker::read(&mut reader).expect("well formed");
                    let payload = DecodedPayload::Typed {
                        number,
                        bytes: Some(&[7, 1, b'x']),
                    };
                    assert_eq!(
                        (read.thread, read.start_ns, read.end_ns),
                        (thread, start_ns, end_ns)
                    );
                    assert_eq!(
                        (read.name, read.category, read.payload),
                        (name.as_bytes(), 6, payload)
                    );
                }
            }
        }
    }

    thread_local! {
        static MISBEHAVIOR: Cell<Option<Misbehavior>> = const { Cell::new(None) };
    }

    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Misbehavior {
        FailsToSerialize,
        PanicsInSerialize,
        FailsHalfwayThroughSerialize,
        FailsToDeserialize,
        PanicsInStream,
    }

    /// A payload that misbehaves in a chosen way.
    struct Tricky(u32, String);

    impl serde::Serialize for Tricky {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            use serde::ser::{Error as _, SerializeTuple as _};
            match MISBEHAVIOR.get() {
                Some(Misbehavior::FailsToSerialize) => return Err(S::Error::custom("no")),
                Some(Misbehavior::PanicsInSerialize) => panic!("on purpose"),
                Some(Misbehavior::FailsHalfwayThroughSerialize) => {
                    serializer.serialize_tuple(2)?.serialize_element(&self.0)?;
                    return Err(S::Error::custom("no"));
                }
                _ => {}
            }
            (self.0, &self.1).serialize(serializer)
        }
    }

    impl<'de> serde::Deserialize<'de> for Tricky {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            use serde::de::Error as _;
            if MISBEHAVIOR.get() == Some(Misbehavior::FailsToDeserialize) {
                return Err(D::Error::custom("no"));
            }
            let (number, text) = <(u32, String)>::deserialize(deserializer)?;
            Ok(Self(number, text))
        }
    }

    impl ProfilerMarker for Tricky {
        fn marker_type_name() -> &'static str {
            "Tricky"
        }
        fn marker_type_display() -> MarkerSchema {
            MarkerSchema::new(&[])
        }
        fn stream_json_marker_data(&self, json: &mut JSONWriter<'_>) {
            json.uint_property("number", self.0.into());
            assert_ne!(MISBEHAVIOR.get(), Some(Misbehavior::PanicsInStream));
            json.string_property("text", &self.1);
        }
    }

    /// Returns the fields of a payload as JSON.
    fn streamed(number: u64, bytes: &[u8]) -> Result<String, PayloadFailure> {
        let mut text = Vec::new();
        let mut strings = UniqueStrings::default();
        let mut json = JsonWriter::new(&mut text);
        let mut result = Ok(());
        json.object(|json| {
            let mut properties = PropertyWriter::new(json, &mut strings, TimeStamp(0));
            result =
                MarkerType::all()[&number].stream(bytes, &mut JSONWriter::new(&mut properties));
            properties.finish();
        });
        json.finish().expect("a vector never fails");
        result.map(|()| String::from_utf8(text).expect("UTF-8"))
    }

    #[test]
    fn payload_of_any_length_reads_back() {
        for text in [String::new(), "µ\0\"".to_owned(), "x".repeat(5000)] {
            let timing = MarkerTiming::instant_now();
            let marker = new_marker(&timing);
            let tricky = Tricky(u32::MAX, text.clone());
            let payload = TypedPayload::new(&tricky);
            put_and_read(&marker, &payload, |read| {
                let DecodedPayload::Typed {
                    number,
                    bytes: Some(bytes),
                } = read.payload
                else {
                    panic!("{read:?}")
                };
                let fields: serde_json::Value =
                    serde_json::from_str(&streamed(number, bytes).expect("fields")).expect("JSON");
                assert_eq!(
                    fields,
                    serde_json::json!({"number": u32::MAX, "text": text})
                );
            });
        }
    }

    #[test]
    fn misbehaving_payload_damages_only_itself() {
        use Misbehavior::*;
        let timing = MarkerTiming::instant_now();
        let marker = new_marker(&timing);
        let tricky = Tricky(7, "some text".to_owned());
        for misbehavior in [
            FailsToSerialize,
            PanicsInSerialize,
            FailsHalfwayThroughSerialize,
        ] {
            MISBEHAVIOR.set(Some(misbehavior));
            put_and_read(&marker, &TypedPayload::new(&tricky), |read| {
                let is_incomplete =
                    matches!(read.payload, DecodedPayload::Typed { bytes: None, .. });
                assert!(
                    is_incomplete && read.name == "name µ".as_bytes(),
                    "{misbehavior:?}: {read:?}"
                );
            });
        }
        MISBEHAVIOR.set(None);
        put_and_read(&marker, &TypedPayload::new(&tricky), |read| {
            let DecodedPayload::Typed {
                number,
                bytes: Some(bytes),
            } = read.payload
            else {
                panic!("{read:?}")
            };
            MISBEHAVIOR.set(Some(FailsToDeserialize));
            assert_eq!(
                streamed(number, bytes),
                Err(PayloadFailure::NotDeserialized)
            );
            MISBEHAVIOR.set(Some(PanicsInStream));
            assert!(std::panic::catch_unwind(|| streamed(number, bytes)).is_err());
            MISBEHAVIOR.set(None);
            assert_eq!(
                streamed(number, &bytes[1..]),
                Err(PayloadFailure::NotDeserialized)
            );
            assert_eq!(
                streamed(number, &[bytes, b"x"].concat()),
                Err(PayloadFailure::NotDeserialized)
            );
            assert!(streamed(number, bytes).is_ok());
        });
    }
}
