//! A rescued profile shows the engine and the fields of markers as a usual profile does, without the
//! types of the markers.

use std::borrow::Cow;
use std::time::Duration;

use gekkota::marker::built_in;
use gekkota::schema::{JSONWriter, Location, MarkerSchema};
use gekkota::{
    FlowId, MarkerOptions, ProfilerMarker, ProfilerSession, ProfilerTime, StartParams, add_marker,
    gecko_profiler_category, marker_type, register_thread,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Folder, rescued};
use crate::common::{Read, isolated, one_loop, wait_until};

marker_type! {
    struct Wide {
        small: u8 => "Small", Integer;
        negative: i64 => "Negative", Integer;
        large: u64 => "Large", Bytes;
        ratio: f32 => "Ratio", Decimal;
        time: Duration => "Time", Duration;
        micros: Duration => "Time", Microseconds;
        moment: ProfilerTime => "Moment", Time;
        flow: FlowId => "Flow", Flow;
        pid: u32 => "Process", Pid;
        text: Cow<'static, str> => "Text", String;
        unique: String => "Unique", UniqueString;
        first: bool => "First", String;
        second: bool => "Second", String;
        maybe: Option<u64> => "Maybe", Integer;
        maybe_text: Option<String> => "Maybe text", String;
        list: Vec<u32> => "List", List;
        lists: Vec<Vec<u8>> => "Lists", List;
    }
}

/// A type by hand, with a choice, a renamed field, a constant, an object and a computed field.
#[derive(Serialize, Deserialize)]
struct ByHand {
    color: Color,
    inner: Inner,
    rows: Vec<Inner>,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
enum Color {
    Red,
    Green,
    Blue,
}

#[derive(Serialize, Deserialize)]
struct Inner {
    letter: char,
    number: i32,
}

impl ProfilerMarker for ByHand {
    fn marker_type_name() -> &'static str {
        "ByHand"
    }

    fn marker_type_display() -> MarkerSchema {
        MarkerSchema::new(&[Location::MarkerTable])
    }

    fn stream_json_marker_data(&self, json: &mut JSONWriter<'_>) {
        let color = match self.color {
            Color::Red => "red",
            Color::Green => "green",
            Color::Blue => "blue",
        };
        json.string_property("hue", color);
        json.string_property("constant", "always the same");
        json.start_object_property("object");
        json.string_property("letter", &self.inner.letter.to_string());
        json.int_property("number", self.inner.number.into());
        json.end_object();
        json.start_array_property("rows");
        for row in &self.rows {
            json.start_object_element();
            json.string_property("letter", &row.letter.to_string());
            json.int_property("number", row.number.into());
            json.end_object();
        }
        json.end_array();
        json.int_property("computed", i64::from(self.inner.number) * 2 + 1);
    }
}

/// A type that cannot be traced: its numbers must be odd and large.
struct Picky(u64);

impl Serialize for Picky {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Picky {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u64::deserialize(deserializer)? {
            number if number > 1000 => Ok(Self(number)),
            _ => Err(serde::de::Error::custom("too small")),
        }
    }
}

impl ProfilerMarker for Picky {
    fn marker_type_name() -> &'static str {
        "Picky"
    }

    fn marker_type_display() -> MarkerSchema {
        MarkerSchema::new(&[Location::MarkerTable])
    }

    fn stream_json_marker_data(&self, json: &mut JSONWriter<'_>) {
        json.uint_property("number", self.0);
    }
}

fn add<T: ProfilerMarker + 'static>(name: &str, payload: T) {
    let options = MarkerOptions::default();
    add_marker(name, gecko_profiler_category!(Other), options, payload);
}

fn wide(has_all: bool) -> Wide {
    Wide {
        small: 200,
        negative: i64::MIN,
        large: u64::MAX,
        ratio: 0.25,
        time: Duration::new(3, 250_000_000),
        micros: Duration::from_nanos(1500),
        moment: ProfilerTime::now(),
        flow: FlowId::from(0xabcdu64),
        pid: 4711,
        text: "a text \"with\" quotes".into(),
        unique: "unique".to_owned(),
        first: has_all,
        second: !has_all,
        maybe: has_all.then_some(7),
        maybe_text: has_all.then(|| "some".to_owned()),
        list: if has_all { vec![1, 2, 3] } else { vec![] },
        lists: if has_all {
            vec![vec![1, 2], vec![], vec![3]]
        } else {
            vec![]
        },
    }
}

fn by_hand(color: Color) -> ByHand {
    ByHand {
        color,
        inner: Inner {
            letter: 'ß',
            number: -70_000,
        },
        rows: (0..3)
            .map(|number| Inner {
                letter: char::from(b'a' + number),
                number: number.into(),
            })
            .collect(),
    }
}

/// Returns the data of each marker of the thread, by name, with texts in place of indices.
fn data(read: &Read) -> Vec<(String, Value)> {
    let thread = read.thread("described");
    let strings = &thread["stringTable"];
    let markers = read.markers("described").into_iter();
    let with_texts = markers.map(|(name, .., mut data)| {
        for key in ["unique", "flow"] {
            if let Some(index) = data.get(key).and_then(Value::as_u64) {
                data[key] = strings[index as usize].clone();
            }
        }
        (name, data)
    });
    with_texts.collect()
}

#[test]
fn fields_are_those_of_a_usual_profile() {
    isolated(|| {
        let folder = Folder::new("described");
        let path = folder.path("file");
        // Known before the session begins, and only during it.
        register_thread("described");
        let params = StartParams::default().crash_file(&path);
        drop(ProfilerSession::start(StartParams::default()).expect("a session"));
        add("before", wide(true));
        let session = ProfilerSession::start(params).expect("a session");
        for has_all in [true, false] {
            add("wide", wide(has_all));
        }
        for color in [Color::Red, Color::Green, Color::Blue] {
            add("by hand", by_hand(color));
        }
        add("picky", Picky(5000));
        add(
            "io",
            built_in::FileIO {
                operation: "read".into(),
                source: "test".into(),
                filename: Some("a file".to_owned()),
                threadId: None,
            },
        );
        add("stack", built_in::StackMarker());
        let usual = data(&Read::from_profile(&session.snapshot().expect("active")));
        let read = rescued(&path);
        let mut expected = usual.clone();
        for (name, data) in &mut expected {
            if name == "by hand" {
                data.as_object_mut().expect("fields").remove("computed");
            }
            if name == "picky" {
                *name = "picky (payload was not described)".to_owned();
                *data = Value::Null;
            }
        }
        let found = data(&read);
        assert_eq!(found.len(), usual.len());
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected);
        }
    });
}

#[test]
fn engine_of_the_session_is_kept() {
    isolated(|| {
        let folder = Folder::new("engine");
        let path = folder.path("file");
        for signal in [libc::SIGURG, libc::SIGRTMIN() + 1] {
            let params = StartParams::default().signal(signal).crash_file(&path);
            let session = ProfilerSession::start(params).expect("start");
            one_loop();
            let engine = |read: Read| read.0["meta"]["samplingEngine"].clone();
            // The kernel is asked for an event only in a session that lasts, and may refuse.
            wait_until("both profiles have the same engine", || {
                engine(rescued(&path)) == engine(Read::of_running())
            });
            let kept = engine(rescued(&path));
            let usual = engine(Read::from_profile(&session.finish().expect("profile")));
            assert!(usual.is_string());
            if signal != libc::SIGURG {
                assert_eq!([kept, usual], ["signals", "signals"]);
            }
        }
    });
}
