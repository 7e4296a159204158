//! A marker's way out of the buffer.

use std::borrow::Cow;

use crate::buffer::EntryReader;
use crate::markers::encode::{
    HAS_STACK, HAS_WINDOW, PAYLOAD_BITS, PAYLOAD_TEXT, PAYLOAD_TYPED, PAYLOAD_WHOLE, PHASE_BITS,
};
use crate::markers::options::MarkerPhase;

/// What a marker carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DecodedPayload<'a> {
    None,
    Text(Cow<'a, str>),
    Typed {
        /// The type's number.
        number: u64,
        /// `None` when it was not coded to its end.
        bytes: Option<&'a [u8]>,
    },
}

/// A marker as it was put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DecodedMarker<'a> {
    pub(crate) thread: u64,
    pub(crate) phase: MarkerPhase,
    /// Nanoseconds since the process began; 0 where the phase has no start.
    pub(crate) start_ns: u64,
    /// Likewise for the end.
    pub(crate) end_ns: u64,
    pub(crate) category: u8,
    /// The number of its stack; 0 for none.
    pub(crate) stack: u64,
    /// 0 for none.
    pub(crate) inner_window_id: u64,
    pub(crate) name: Cow<'a, str>,
    pub(crate) payload: DecodedPayload<'a>,
}

impl<'a> DecodedMarker<'a> {
    /// The marker of an entry whose kind was read already; `None` when it is malformed.
    pub(crate) fn read(entry: &mut EntryReader<'a>) -> Option<Self> {
        let thread = entry.number()?;
        let what = entry.byte()?;
        let phase = match what & PHASE_BITS {
            0 => MarkerPhase::Instant,
            1 => MarkerPhase::Interval,
            2 => MarkerPhase::IntervalStart,
            _ => MarkerPhase::IntervalEnd,
        };
        if what & !(PHASE_BITS | PAYLOAD_BITS | HAS_STACK | HAS_WINDOW) != 0 {
            return None;
        }
        let (start_ns, end_ns) = (entry.large()?, entry.large()?);
        let category = entry.byte()?;
        let _subcategory = entry.byte()?;
        let stack = if what & HAS_STACK == 0 {
            0
        } else {
            entry.number()?
        };
        let inner_window_id = if what & HAS_WINDOW == 0 {
            0
        } else {
            entry.number()?
        };
        let name_bytes = entry.number()?;
        let payload_bits = what & PAYLOAD_BITS;
        let number = if payload_bits == PAYLOAD_TYPED {
            entry.number()?
        } else {
            0
        };
        let name = String::from_utf8_lossy(entry.bytes(name_bytes)?);
        let payload = match payload_bits {
            0 => DecodedPayload::None,
            PAYLOAD_TEXT => DecodedPayload::Text(String::from_utf8_lossy(entry.rest())),
            PAYLOAD_TYPED => {
                let (is_whole, bytes) = entry.rest().split_last()?;
                DecodedPayload::Typed {
                    number,
                    bytes: (*is_whole == PAYLOAD_WHOLE).then_some(bytes),
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
            stack,
            inner_window_id,
            name,
            payload,
        })
    }

    /// Whether there is anything to say but name, times and category.
    pub(crate) fn has_user_data(&self) -> bool {
        self.stack != 0 || self.inner_window_id != 0
    }

    /// The last moment that it tells of, in nanoseconds since the process began.
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
    use crate::base::{ProfilerTime, ProfilingCategoryPair, TimeStamp};
    use crate::buffer::{ChunkedBuffer, Entry, EntryCursor, EntryKind};
    use crate::json::{JsonWriter, UniqueStrings};
    use crate::markers::encode::{
        MarkerEntry, NewPayload, SHORT_NUMBERS, SHORT_TIMES, TypedPayload,
    };
    use crate::markers::{
        JSONWriter, MarkerPlace, MarkerSchema, MarkerTiming, MarkerType, NewMarker, NoPayload,
        PayloadFailure, ProfilerMarker, PropertyWriter, TextPayload,
    };

    /// Puts a marker and hands what is read of it over.
    fn put_and_read(
        marker: &NewMarker<'_>,
        payload: &impl NewPayload,
        check: impl FnOnce(DecodedMarker<'_>),
    ) {
        let buffer = ChunkedBuffer::for_test(1 << 20);
        let session = ChunkedBuffer::TEST_SESSION;
        let place = MarkerPlace {
            session,
            thread: 3,
            now: TimeStamp(1000),
        };
        let entry = MarkerEntry::new(&place, TimeStamp(100), marker, *payload);
        assert!(buffer.take_lane().put(session, place.now, &entry).is_some());
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
            category: ProfilingCategoryPair::Network(None).indices(),
            timing,
            stack: 0,
        }
    }

    #[test]
    fn markers_read_back_with_the_times_of_their_phase() {
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
                    stack,
                    inner_window_id: window,
                    name: "name µ".into(),
                    payload,
                };
                let text = "text".into();
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
    fn a_marker_of_any_size_reads_back() {
        let process_start = TimeStamp(100);
        let tricky = Tricky(7, "x".to_owned());
        let numbers = [1, SHORT_NUMBERS - 1, SHORT_NUMBERS, u64::MAX];
        let times = [0, 1, SHORT_TIMES - 1, SHORT_TIMES, u64::MAX >> 1];
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
                    &"n".repeat(SHORT_NUMBERS as usize - 1),
                    &"n".repeat(300),
                ] {
                    let time = |ns| ProfilerTime::from_monotonic_ns(process_start.0 + ns);
                    let timing = MarkerTiming::interval(time(start_ns), time(end_ns));
                    let category = ProfilingCategoryPair::Network(None).indices();
                    let marker = NewMarker {
                        name,
                        category,
                        timing: &timing,
                        stack: 0,
                    };
                    let place = MarkerPlace {
                        session: ChunkedBuffer::TEST_SESSION,
                        thread,
                        now: process_start,
                    };
                    let payload = TypedPayload::new(&tricky).with_number(number);
                    let entry = MarkerEntry::new(&place, process_start, &marker, payload);
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
                        (name.into(), 6, payload)
                    );
                }
            }
        }
    }

    thread_local! {
        static MISBEHAVES: Cell<Option<Misbehaviour>> = const { Cell::new(None) };
    }

    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Misbehaviour {
        RefusesToSay,
        PanicsWhenWritten,
        RefusesHalfWay,
        RefusesToRead,
        PanicsInFields,
    }

    /// What a payload of a host's may do.
    struct Tricky(u32, String);

    impl serde::Serialize for Tricky {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            use serde::ser::{Error as _, SerializeTuple as _};
            match MISBEHAVES.get() {
                Some(Misbehaviour::RefusesToSay) => return Err(S::Error::custom("no")),
                Some(Misbehaviour::PanicsWhenWritten) => panic!("on purpose"),
                Some(Misbehaviour::RefusesHalfWay) => {
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
            if MISBEHAVES.get() == Some(Misbehaviour::RefusesToRead) {
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
            assert_ne!(MISBEHAVES.get(), Some(Misbehaviour::PanicsInFields));
            json.string_property("text", &self.1);
        }
    }

    /// The fields of a payload as JSON.
    fn streamed(number: u64, bytes: &[u8]) -> Result<String, PayloadFailure> {
        let mut text = Vec::new();
        let mut strings = UniqueStrings::default();
        let mut json = JsonWriter::new(&mut text);
        let mut answer = Ok(());
        json.object(|json| {
            let mut properties = PropertyWriter::new(json, &mut strings, TimeStamp(0));
            answer =
                MarkerType::all()[&number].stream(bytes, &mut JSONWriter::new(&mut properties));
            properties.finish();
        });
        json.finish().expect("a vector never fails");
        answer.map(|()| String::from_utf8(text).expect("UTF-8"))
    }

    #[test]
    fn payloads_read_back_as_they_were() {
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
    fn a_payload_that_misbehaves_spoils_itself_alone() {
        use Misbehaviour::*;
        let timing = MarkerTiming::instant_now();
        let marker = new_marker(&timing);
        let tricky = Tricky(7, "some text".to_owned());
        for misbehaviour in [RefusesToSay, PanicsWhenWritten, RefusesHalfWay] {
            MISBEHAVES.set(Some(misbehaviour));
            put_and_read(&marker, &TypedPayload::new(&tricky), |read| {
                let is_spoilt = matches!(read.payload, DecodedPayload::Typed { bytes: None, .. });
                assert!(
                    is_spoilt && read.name == "name µ",
                    "{misbehaviour:?}: {read:?}"
                );
            });
        }
        MISBEHAVES.set(None);
        put_and_read(&marker, &TypedPayload::new(&tricky), |read| {
            let DecodedPayload::Typed {
                number,
                bytes: Some(bytes),
            } = read.payload
            else {
                panic!("{read:?}")
            };
            MISBEHAVES.set(Some(RefusesToRead));
            assert_eq!(streamed(number, bytes), Err(PayloadFailure::Unreadable));
            MISBEHAVES.set(Some(PanicsInFields));
            assert!(std::panic::catch_unwind(|| streamed(number, bytes)).is_err());
            MISBEHAVES.set(None);
            assert_eq!(
                streamed(number, &bytes[1..]),
                Err(PayloadFailure::Unreadable)
            );
            assert_eq!(
                streamed(number, &[bytes, b"x"].concat()),
                Err(PayloadFailure::Unreadable)
            );
            assert!(streamed(number, bytes).is_ok());
        });
    }
}
