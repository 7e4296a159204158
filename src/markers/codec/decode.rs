//! Decodes a marker from the buffer.

use crate::buffer::EntryReader;
use crate::markers::codec::encode::{
    HAS_STACK, HAS_WINDOW, PAYLOAD_BITS, PAYLOAD_COMPLETE, PAYLOAD_TEXT, PAYLOAD_TYPED, PHASE_BITS,
};
use crate::types::MarkerPhase;

/// Only a damaged buffer has a higher rarity.
const MAX_RARITY: u8 = 62;

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
        let stack = if flags & HAS_STACK == 0 {
            0
        } else {
            entry.number()?
        };
        let inner_window_id = if flags & HAS_WINDOW == 0 {
            0
        } else {
            entry.number()?
        };
        let name_bytes = entry.number()?;
        let payload_bits = flags & PAYLOAD_BITS;
        let number = if payload_bits == PAYLOAD_TYPED {
            entry.number()?
        } else {
            0
        };
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
    use crate::buffer::{ChunkedBuffer, Entry, EntryCursor, EntryKind};
    use crate::json::{JsonWriter, UniqueStrings};
    use crate::markers::codec::encode::{
        MarkerEntry, NewPayload, SHORT_NUMBER_LIMIT, SHORT_TIME_LIMIT, TypedPayload,
    };
    use crate::markers::codec::encode::{NoPayload, TextPayload};
    use crate::markers::codec::payload::PayloadFailure;
    use crate::markers::codec::property_writer::PropertyWriter;
    use crate::markers::codec::type_registry::MarkerType;
    use crate::markers::json_writer::JSONWriter;
    use crate::markers::options::MarkerTiming;
    use crate::markers::options::{MarkerDestination, NewMarker};
    use crate::markers::profiler_marker::ProfilerMarker;
    use crate::markers::schema::MarkerSchema;
    use crate::types::{ProfilerTime, ProfilingCategoryPair, TimeStamp};

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
