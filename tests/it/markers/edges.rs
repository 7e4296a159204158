//! Markers and labels with unusual times, names, texts, numbers and failing payloads. Each has its
//! documented result, and the profile stays valid.

use crate::common::sampled::work_until_sampled;
use crate::common::{self, Read, isolated};
use gekkota::label::{LabelFlags, auto_profiler_label_dynamic_utf16};
use gekkota::marker::{add_text_marker_fmt, lazy_add_text_marker, lazy_add_untyped_marker};
use gekkota::schema::{Deserialize, JSONWriter, MarkerSchema, Serialize};
use gekkota::{
    AutoProfilerLabel, MarkerOptions, MarkerTiming, ProfilerMarker, ProfilerSession, ProfilerTime,
    ProfilingCategoryPair, StartParams, add_marker, add_text_marker, add_untyped_marker,
    gecko_profiler_category, lazy_add_marker,
};
use serde::de::Error as _;
use serde::ser::Error as _;
use serde_json::{Value, json};

const OTHER: ProfilingCategoryPair = ProfilingCategoryPair::Other(None);

/// How a payload fails.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fails {
    Nowhere,
    ToSerialize,
    ToSerializeByPanic,
    ToDeserialize,
    ToDeserializeByPanic,
    ToStream,
    ToStreamHalfWay,
    ByStreamingNonsense,
}

struct Failing(Fails);

impl Serialize for Failing {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Fails::ToSerialize => Err(S::Error::custom("the test wants this failure")),
            Fails::ToSerializeByPanic => panic!("the test wants this failure"),
            fails => serializer.serialize_u8(fails as u8),
        }
    }
}

impl<'de> Deserialize<'de> for Failing {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u8::deserialize(deserializer)?;
        let all = [
            Fails::Nowhere,
            Fails::ToDeserialize,
            Fails::ToDeserializeByPanic,
            Fails::ToStream,
            Fails::ToStreamHalfWay,
            Fails::ByStreamingNonsense,
        ];
        match all.into_iter().find(|fails| *fails as u8 == number) {
            Some(Fails::ToDeserialize) | None => {
                Err(D::Error::custom("the test wants this failure"))
            }
            Some(Fails::ToDeserializeByPanic) => panic!("the test wants this failure"),
            Some(fails) => Ok(Self(fails)),
        }
    }
}

impl ProfilerMarker for Failing {
    fn marker_type_name() -> &'static str {
        "Failing"
    }
    fn marker_type_display() -> MarkerSchema {
        MarkerSchema::new(&[])
    }
    fn stream_json_marker_data(&self, json: &mut JSONWriter<'_>) {
        match self.0 {
            Fails::ToStream => std::panic::panic_any(common::PanicsAgain),
            Fails::ToStreamHalfWay => {
                json.start_array_property("begun");
                (0..100_000).for_each(|number| json.int_element(number));
                panic!("the test wants this failure");
            }
            Fails::ByStreamingNonsense => {
                json.end_array();
                json.int_element(7);
                json.float_property("nan", f64::NAN);
                json.float_property("infinite", f64::NEG_INFINITY);
                json.int_property("type", 8);
                json.start_object_property("stack");
                json.start_array_property("left open");
                json.string_element("\u{0}\"\\\u{7f}\u{2028}");
            }
            _ => json.bool_property("well", true),
        }
    }
}

/// A marker type whose name panics.
#[derive(Serialize, Deserialize)]
struct Nameless;

impl ProfilerMarker for Nameless {
    fn marker_type_name() -> &'static str {
        panic!("the test wants this failure")
    }
    fn marker_type_display() -> MarkerSchema {
        MarkerSchema::new(&[])
    }
    fn stream_json_marker_data(&self, _: &mut JSONWriter<'_>) {}
}

fn at(timing: MarkerTiming) -> MarkerOptions {
    MarkerOptions::default().with_timing(timing)
}

fn odd_times(now: ProfilerTime) {
    let long_ago = now.subtract_microseconds(1e18);
    let far_away = now.add_microseconds(1e30);
    let soon = now.add_microseconds(1000.0);
    add_untyped_marker(
        "before the process",
        OTHER,
        at(MarkerTiming::instant_at(long_ago)),
    );
    add_untyped_marker(
        "over all time",
        OTHER,
        at(MarkerTiming::interval(long_ago, far_away)),
    );
    add_untyped_marker("reversed", OTHER, at(MarkerTiming::interval(soon, now)));
    add_untyped_marker(
        "from later until now",
        OTHER,
        at(MarkerTiming::interval_until_now_from(far_away)),
    );
    add_untyped_marker("start", OTHER, at(MarkerTiming::interval_start(long_ago)));
    add_untyped_marker("end", OTHER, at(MarkerTiming::interval_end(far_away)));
    add_untyped_marker(
        "nan",
        OTHER,
        at(MarkerTiming::instant_at(now.add_microseconds(f64::NAN))),
    );
}

const ODD_NAME: &str = "\"quoted\" \\ \n\r\t\u{0}\u{1f}\u{7f} 𝄞 {marker.name} (in x)";

fn odd_texts() {
    add_untyped_marker("", OTHER, MarkerOptions::default());
    add_text_marker(ODD_NAME, OTHER, MarkerOptions::default(), ODD_NAME);
    add_text_marker("empty", OTHER, MarkerOptions::default(), "");
    add_text_marker_fmt!(
        "formatted",
        OTHER,
        MarkerOptions::default(),
        "{:>4}|{}",
        7,
        "é".repeat(400)
    );
}

fn failing_payloads() {
    for fails in [
        Fails::Nowhere,
        Fails::ToSerialize,
        Fails::ToSerializeByPanic,
        Fails::ToDeserialize,
        Fails::ToDeserializeByPanic,
        Fails::ToStream,
        Fails::ToStreamHalfWay,
        Fails::ByStreamingNonsense,
    ] {
        add_marker(
            &format!("{fails:?}"),
            OTHER,
            MarkerOptions::default(),
            Failing(fails),
        );
    }
    add_marker(
        "nameless",
        OTHER,
        MarkerOptions::default().with_inner_window_id(3),
        Nameless,
    );
}

/// Adds lazy markers, and returns the number of evaluated arguments. Panics if one is evaluated
/// although no session records.
fn lazily(records: bool) -> u32 {
    let mut evaluated = 0;
    let mut once = |text: &'static str| {
        assert!(records, "an argument was evaluated");
        evaluated += 1;
        text
    };
    lazy_add_text_marker!(
        once("lazy text"),
        OTHER,
        MarkerOptions::default(),
        once("text")
    );
    lazy_add_untyped_marker!(once("lazy"), OTHER, MarkerOptions::default());
    lazy_add_marker!(
        once("lazy typed"),
        OTHER,
        MarkerOptions::default(),
        Failing(Fails::Nowhere)
    );
    lazy_add_marker!(once("lazy typed"), OTHER, Failing(Fails::Nowhere));
    lazy_add_marker!(once("lazy typed"), Failing(Fails::Nowhere));
    add_text_marker_fmt!("lazy", OTHER, MarkerOptions::default(), "{}", once("text"));
    evaluated
}

#[inline(never)]
fn odd_labels() {
    let cut = "é".repeat(256) + "x";
    assert_eq!(cut.len(), 513);
    let mut utf16: Vec<u16> = "a𝄞".encode_utf16().collect();
    utf16.extend([0xdc00, 0x0, 0xd800]);
    let _empty = AutoProfilerLabel::new("", OTHER);
    let _nul = AutoProfilerLabel::with_dynamic("nul \0", "\0", OTHER);
    let _long = AutoProfilerLabel::with_dynamic("long", &cut, OTHER);
    let exact = "y".repeat(512);
    let _exact = AutoProfilerLabel::with_dynamic("exact", &exact, OTHER);
    auto_profiler_label_dynamic_utf16!("utf16", &utf16, Other);
    let _address = AutoProfilerLabel::new("0x1f", OTHER);
    let _place = AutoProfilerLabel::with_dynamic("f", "(a.rs:3)", OTHER);
    let flags = LabelFlags::METHOD | LabelFlags::NONSENSITIVE;
    let _method = AutoProfilerLabel::with_flags("Element", "append", OTHER, flags);
    let _getter = AutoProfilerLabel::with_flags("Element", "id", OTHER, LabelFlags::GETTER);
    let _setter = AutoProfilerLabel::with_flags("Element", "id", OTHER, LabelFlags::SETTER);
    work_until_sampled(15);
    std::hint::black_box(());
}

fn check_labels(read: &Read) {
    let samples = read.samples("odd");
    let inside = samples
        .iter()
        .find(|sample| sample.stack.iter().any(|frame| frame == "set Element.id"));
    let labels: Vec<&str> = inside
        .expect("a sample")
        .stack
        .iter()
        .map(String::as_str)
        .skip_while(|frame| !frame.is_empty())
        .take(10)
        .collect();
    let long = format!("long {}", "é".repeat(256));
    let exact = format!("exact {}", "y".repeat(512));
    let expected = [
        "",
        "nul \0 \0",
        &long,
        &exact,
        "utf16 a𝄞\u{fffd}\0\u{fffd}",
        "\u{a0}0x1f",
        "f\u{a0}(a.rs:3)",
        "Element.append",
        "get Element.id",
        "set Element.id",
    ];
    assert_eq!(labels, expected);
}

#[test]
fn unusual_markers_and_labels_have_documented_results() {
    isolated(|| {
        assert_eq!(lazily(false), 0);
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let now = ProfilerTime::now();
        let evaluated = std::thread::spawn(move || {
            gekkota::register_thread("odd");
            // Takes snapshots, so it precedes the payloads that panic in each profile.
            odd_labels();
            odd_times(now);
            odd_texts();
            failing_payloads();
            lazily(true)
        });
        assert_eq!(evaluated.join().expect("adding a marker never panics"), 7);
        let read = Read::from_profile(&session.finish().expect("profile"));
        check_labels(&read);

        let markers = read.markers("odd");
        let find = |name: &str| markers.iter().find(|marker| marker.0 == name);
        let of = |name: &str| {
            find(name)
                .unwrap_or_else(|| panic!("no {name:?} in {markers:#?}"))
                .clone()
        };
        // Times: one before the start of the process becomes the start. A reversed interval stays
        // reversed.
        assert_eq!(
            (of("before the process").1, of("before the process").2),
            (0.0, None)
        );
        let all = of("over all time");
        assert!(
            all.1 == 0.0 && all.2.is_some_and(|end| end > 1e12),
            "{all:?}"
        );
        let reversed = of("reversed");
        assert!(
            reversed
                .2
                .is_some_and(|end| (reversed.1 - end - 1.0).abs() < 1e-5),
            "{reversed:?}"
        );
        assert!(
            of("from later until now")
                .2
                .is_some_and(|end| end < of("from later until now").1)
        );
        assert_eq!(
            (of("start").1, of("start").2, of("start").3),
            (0.0, None, 2)
        );
        assert!(of("end").2.is_some_and(|end| end > 1e12));
        assert!(
            (of("nan").1 - of("reversed").2.expect("an end")).abs() < 1e-5,
            "NaN counts as 0"
        );
        // Texts.
        assert_eq!(of("").5, Value::Null);
        assert_eq!(of(ODD_NAME).5["name"], ODD_NAME);
        assert_eq!(of("empty").5["name"], "");
        assert_eq!(
            of("formatted").5["name"],
            format!("   7|{}", "é".repeat(253))
        );
        // Payloads: the marker's name reports the failure.
        assert_eq!(of("Nowhere").5, json!({"type": "Failing", "well": true}));
        for name in ["ToSerialize", "ToSerializeByPanic"] {
            assert_eq!(
                of(&format!("{name} (payload could not be serialized)")).5,
                Value::Null
            );
        }
        assert_eq!(
            of("ToDeserialize (payload could not be deserialized)").5,
            Value::Null
        );
        for name in ["ToDeserializeByPanic", "ToStream", "ToStreamHalfWay"] {
            assert_eq!(of(&format!("{name} (payload panicked)")).5, Value::Null);
        }
        let nonsense = of("ByStreamingNonsense").5;
        let expected = json!({
            "type": "Failing", "nan": null, "infinite": null, "type_": 8,
            "stack_": {"left open": ["\u{0}\"\\\u{7f}\u{2028}"]},
        });
        assert_eq!(nonsense, expected);
        assert_eq!(
            of("nameless (payload panicked)").5,
            json!({"type": "NoPayloadUserData", "innerWindowID": 3})
        );
        assert!(find("lazy text").is_some() && find("lazy").is_some());
        assert_eq!(
            markers
                .iter()
                .filter(|marker| marker.0 == "lazy typed")
                .count(),
            3
        );

        let losses = &read.0["meta"]["losses"];
        assert_eq!(
            (&losses["overrun_entries"], &losses["malformed_entries"]),
            (&json!(0), &json!(0))
        );
        let log = &read.0["profilingLog"][std::process::id().to_string()]["buffer"];
        assert_eq!(log["spoiled_payloads"], 7);
        let schemas: Vec<_> = read.0["meta"]["markerSchema"]
            .as_array()
            .expect("schemas")
            .iter()
            .map(|s| &s["name"])
            .collect();
        assert_eq!(schemas, ["Failing", "NoPayloadUserData", "Text"]);
        assert_eq!(gecko_profiler_category!(Other), OTHER);
    });
}
