//! Defines a marker type for each format of a field, with values that are easy to get wrong.

use gekkota::process::ProcessId;
use gekkota::schema::{Deserialize, JSONWriter, MarkerSchema, Serialize};
use gekkota::schema::{Format, Location};
use gekkota::thread::ThreadId;
use gekkota::{
    FlowId, MarkerTiming, ProfilerMarker, ProfilerTime, add_marker, gecko_profiler_category,
    marker_type,
};

use super::after;

/// Defines a marker type for each numeric format, and a function that adds a marker of each.
macro_rules! numbers {
    ($($(#[$meta:meta])* $type:ident($name:literal, $format:ident, $typical:literal);)+) => {
        $(
            marker_type! {
                $(#[$meta])*
                struct $type {
                    typical: f64 => "Typical", $format;
                    zero: u32 => "Zero", $format;
                    negative: i32 => "Negative", $format;
                    huge: u64 => "Huge", $format;
                    not_a_number: f64 => "Not a number", $format;
                    infinite: f64 => "Infinite", $format;
                    missing: Option<f64> => "Missing", $format;
                }
                name = $name;
            }
        )+

        fn show_numbers(time: MarkerTiming) {
            $(
                let numbers = $type {
                    typical: $typical,
                    zero: 0,
                    negative: -1500,
                    huge: u64::MAX,
                    not_a_number: f64::NAN,
                    infinite: f64::INFINITY,
                    missing: None,
                };
                add_marker($name, gecko_profiler_category!(Test), time.into(), numbers);
            )+
        }
    };
}

numbers! {
    /// Milliseconds, shown in a unit that fits.
    Durations("duration", Duration, 1536.0);
    /// Milliseconds, shown as seconds.
    Seconds("seconds", Seconds, 1536.0);
    Milliseconds("milliseconds", Milliseconds, 1536.0);
    Microseconds("microseconds", Microseconds, 1536.0);
    Nanoseconds("nanoseconds", Nanoseconds, 1536.0);
    Sizes("bytes", Bytes, 1_536_000.0);
    /// A share from 0 to 1.
    Shares("percentage", Percentage, 0.25);
    Integers("integer", Integer, 1536.0);
    Decimals("decimal", Decimal, 1.5);
    /// The viewer shows the lowest 32 bits only.
    Hexadecimals("hexadecimal", Hexadecimal, 48879.0);
}

/// A text that is hard to encode: quotes, a backslash, control characters, a line separator, and
/// characters that need two UTF-16 units.
const AWKWARD: &str = "\"quoted\" \\ a\tb\u{1}c\u{7f}\u{2028}µ🦎 {marker.name} <b>";

/// Defines a marker type for each text format, and a function that adds a marker of each.
macro_rules! texts {
    ($($(#[$meta:meta])* $type:ident($name:literal, $format:ident, $typical:literal);)+) => {
        $(
            marker_type! {
                $(#[$meta])*
                struct $type {
                    typical: String => "Typical", $format;
                    empty: String => "Empty", $format;
                    awkward: String => "Awkward", $format;
                    number: u32 => "Number", $format;
                    missing: Option<String> => "Missing", $format;
                }
                name = $name;
            }
        )+

        fn show_texts(time: MarkerTiming) {
            $(
                let texts = $type {
                    typical: $typical.to_owned(),
                    empty: String::new(),
                    awkward: AWKWARD.to_owned(),
                    number: 7,
                    missing: None,
                };
                add_marker($name, gecko_profiler_category!(Test), time.into(), texts);
            )+
        }
    };
}

texts! {
    /// Shown as a link.
    Links("url", Url, "https://example.org/a?b=c");
    /// Only the last path component remains when a profile is shared without private data.
    Paths("file-path", FilePath, "/home/user/notes.txt");
    /// Removed when a profile is shared without private data.
    Secrets("sanitized-string", SanitizedString, "a secret");
    Strings("string", String, "a string");
    /// The profile stores each distinct text once.
    UniqueStrings("unique-string", UniqueString, "a unique string");
}

marker_type! {
    /// A time. Like a marker's own time, the profile stores it relative to the start of the
    /// process.
    struct Moments {
        typical: ProfilerTime => "Typical", Time;
    }
    name = "time";
}

marker_type! {
    struct Processes {
        typical: ProcessId => "Typical", Pid;
    }
    name = "pid";
}

marker_type! {
    struct Threads {
        typical: ThreadId => "Typical", Tid;
    }
    name = "tid";
}

marker_type! {
    struct Lists {
        typical: Vec<String> => "Typical", List;
        numbers: Vec<u32> => "Numbers", List;
        empty: Vec<String> => "Empty", List;
        gaps: Vec<Option<f64>> => "With gaps", List;
        single: String => "No list", List;
    }
    name = "list";
}

marker_type! {
    struct Flows {
        typical: FlowId => "Typical", Flow;
    }
    name = "flow-id";
}

marker_type! {
    struct FlowEnds {
        typical: FlowId => "Typical", TerminatingFlow;
    }
    name = "terminating-flow-id";
}

/// A table. [`marker_type!`] has no syntax for tables, so this type implements the trait by hand.
#[derive(Serialize, Deserialize)]
struct Table {
    rows: Vec<(String, u64, f64)>,
}

impl ProfilerMarker for Table {
    fn marker_type_name() -> &'static str {
        "table"
    }

    fn marker_type_display() -> MarkerSchema {
        let mut schema = MarkerSchema::new(&[Location::MarkerChart, Location::MarkerTable]);
        let columns = [
            ("File", None),
            ("Size", Some(Format::Bytes)),
            ("Share", Some(Format::Percentage)),
        ];
        schema.add_key_label_table("typical", "Typical", &columns);
        schema.add_key_label_table("empty", "Empty", &columns);
        schema
    }

    fn stream_json_marker_data(&self, json: &mut JSONWriter<'_>) {
        json.start_array_property("typical");
        for (file, size, share) in &self.rows {
            // Each row needs one element per column.
            json.start_array_element();
            json.string_element(file);
            json.uint_element(*size);
            json.float_element(*share);
            json.end_array();
        }
        json.end_array();
        json.start_array_property("empty");
        json.end_array();
    }
}

/// Adds one marker of each type.
pub(crate) fn show(start: ProfilerTime) {
    let category = gecko_profiler_category!(Test);
    let time = MarkerTiming::interval(after(start, 10.0), after(start, 30.0));
    show_numbers(time);
    show_texts(time);
    let options = time.into();
    add_marker(
        "time",
        category,
        options,
        Moments {
            typical: after(start, 10.0),
        },
    );
    add_marker(
        "pid",
        category,
        options,
        Processes {
            typical: gekkota::process::profiler_current_process_id(),
        },
    );
    add_marker(
        "tid",
        category,
        options,
        Threads {
            typical: gekkota::thread::profiler_current_thread_id(),
        },
    );
    let lists = Lists {
        typical: vec!["one".to_owned(), "two".to_owned()],
        numbers: vec![3, 4],
        empty: Vec::new(),
        gaps: vec![Some(0.5), None, Some(f64::NAN)],
        single: "alone".to_owned(),
    };
    add_marker("list", category, options, lists);
    add_marker(
        "flow-id",
        category,
        options,
        Flows {
            typical: FlowId::from(0x00ab_cdefu64),
        },
    );
    add_marker(
        "terminating-flow-id",
        category,
        options,
        FlowEnds {
            typical: FlowId::from(0x00ab_cdefu64),
        },
    );
    let rows = vec![
        ("a.txt".to_owned(), 1536, 0.25),
        ("b.txt".to_owned(), 15_000, 0.75),
    ];
    add_marker("table", category, options, Table { rows });
}
