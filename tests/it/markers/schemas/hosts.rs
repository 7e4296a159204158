//! Marker types of the application that share a name, use a name of the viewer's own types, or have
//! fields in unsuitable formats.

use std::time::Duration;

use gekkota::process::ProcessId;
use gekkota::schema::{Deserialize, Format, JSONWriter, MarkerSchema, Serialize};
use gekkota::thread::ThreadId;
use gekkota::{
    FlowId, MarkerOptions, ProfilerMarker, ProfilerSession, StartParams, add_marker,
    add_untyped_marker, gecko_profiler_category, marker_type,
};
use serde_json::json;

use super::{payloads, schemas};
use crate::common::Read;

/// The first of two types with the same name.
mod one {
    gekkota::marker_type! {
        pub(crate) struct Shared {
            pub(crate) both: u32 => "Both", Integer;
            pub(crate) first: String => "First", String;
        }
        places = [MarkerChart];
        label = "{marker.data.first}";
    }
}

mod two {
    gekkota::marker_type! {
        pub(crate) struct Shared {
            pub(crate) both: u32 => "Both", Integer;
            pub(crate) second: u64 => "Second", Bytes;
        }
        places = [MarkerTable];
        graph = (second, Line);
    }
}

// Types with names of the viewer's own types, but without the fields that the viewer then expects.
marker_type! {
    struct GCMajor {
        freed: u64 => "Freed", Bytes;
    }
}

/// A type whose schema has the fields that the viewer expects, but whose data never has them.
#[derive(Serialize, Deserialize)]
struct GCSlice;

impl ProfilerMarker for GCSlice {
    fn marker_type_name() -> &'static str {
        "GCSlice"
    }

    fn marker_type_display() -> MarkerSchema {
        let mut schema = MarkerSchema::new(&[]);
        schema.add_key_format("timings", Format::String);
        schema
    }

    fn stream_json_marker_data(&self, _: &mut JSONWriter<'_>) {
        panic!("the payload panics, as the test wants");
    }
}

marker_type! {
    struct Network {
        packets: u64 => "Packets", Integer;
    }
}

marker_type! {
    /// Values that are converted to their formats.
    struct Units {
        nanoseconds: Duration => "Duration", Nanoseconds;
        microseconds: Duration => "Duration", Microseconds;
        milliseconds: Duration => "Duration", Milliseconds;
        seconds: Duration => "Duration", Seconds;
        duration: Duration => "Duration", Duration;
        number_in_list: u32 => "Number", List;
        truth_in_list: bool => "Truth", List;
        duration_in_list: Duration => "Duration", List;
        flow_in_list: FlowId => "Flow", List;
        thread_in_list: ThreadId => "Thread", List;
        text: u32 => "Number", String;
        process: i32 => "Process", Pid;
        host: ProcessId => "Process", Integer;
        truth: bool => "Truth", String;
        truth_in_path: bool => "Truth", FilePath;
        flow: u64 => "Flow", Flow;
        nothing: Option<Vec<u32>> => "Nothing", List;
    }
}

pub(crate) fn record_application_types() -> Read {
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    gekkota::register_thread("application");
    let (category, options) = (gecko_profiler_category!(Other), MarkerOptions::default());
    add_marker(
        "one",
        category,
        options,
        one::Shared {
            both: 1,
            first: "text".to_owned(),
        },
    );
    add_marker("two", category, options, two::Shared { both: 2, second: 7 });
    add_marker("collection", category, options, GCMajor { freed: 7 });
    add_marker("packets", category, options, Network { packets: 7 });
    add_marker("slice", category, options.with_inner_window_id(3), GCSlice);
    add_untyped_marker("CompositorScreenshot", category, options);
    let duration = Duration::from_micros(1500);
    let units = Units {
        nanoseconds: duration,
        microseconds: duration,
        milliseconds: duration,
        seconds: duration,
        duration,
        number_in_list: 7,
        truth_in_list: true,
        duration_in_list: duration,
        flow_in_list: FlowId::from(7u64),
        thread_in_list: ThreadId::from_number(7),
        text: 7,
        process: 7,
        host: ProcessId::from_number(7),
        truth: true,
        truth_in_path: true,
        flow: 7,
        nothing: None,
    };
    add_marker("units", category, options, units);
    Read::from_profile(&session.finish().expect("profile"))
}

pub(crate) fn check_application_types(read: &Read) {
    let schemas = schemas(read);
    assert_eq!(
        schemas.keys().copied().collect::<Vec<_>>(),
        [
            "GCMajor_",
            "GCSlice",
            "Network_",
            "NoPayloadUserData",
            "Shared",
            "Units"
        ],
        "only schemas of this session"
    );
    let shared = schemas["Shared"];
    let keys: Vec<_> = shared["data"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| &row["key"])
        .collect();
    assert_eq!(json!(keys), json!(["both", "first", "second"]));
    assert_eq!(shared["display"], json!(["marker-chart", "marker-table"]));
    assert_eq!(shared["graphs"], json!([{"key": "second", "type": "line"}]));
    assert_eq!(shared["chartLabel"], "{marker.data.first}");

    let expected = json!([
        ["one", {"type": "Shared", "both": 1, "first": "text"}],
        ["two", {"type": "Shared", "both": 2, "second": 7}],
        ["collection", {"type": "GCMajor_", "freed": 7}],
        ["packets", {"type": "Network_", "packets": 7}],
        ["slice (payload panicked)", {"type": "NoPayloadUserData", "innerWindowID": 3}],
        // Renamed: the viewer does not open a profile with that name but without a picture.
        ["Compositor screenshot", null],
        ["units", {
            "type": "Units", "nanoseconds": 1_500_000, "microseconds": 1500, "milliseconds": 1.5, "seconds": 1.5, "duration": 1.5,
            "number_in_list": [7], "truth_in_list": [true], "duration_in_list": [1.5],
            "flow_in_list": ["0000000000000007"], "thread_in_list": [7],
            "text": "7", "process": "7", "host": 7, "truth": true, "truth_in_path": "true", "flow": "0000000000000007",
        }],
    ]);
    assert_eq!(json!(payloads(read, "application")), expected);
}
