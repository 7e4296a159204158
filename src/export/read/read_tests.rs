use super::*;
use crate::export::options::ExportOptions;
use crate::export::write_profile;
use crate::model::{FieldValue, FunctionKind, MarkerPhase, ProfileModel, StackId, Thread};
use crate::types::{Format, MAX_PROCESS_LEVELS, ReadError};

/// A profile of Gecko's format with each kind of frame, a child process, and short rows.
const GECKO: &str = r#"{
 "meta": {"version": 36, "startTime": 1000, "interval": 1, "product": "demo", "presymbolicated": false,
  "profilingStartTime": 0, "profilingEndTime": 9.5, "stackwalk": 1, "misc": "rv:1",
  "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "\u00b5s"},
  "configuration": {"features": ["js", "cpu"], "threads": ["*"]},
  "categories": [{"name": "Other", "color": "grey", "subcategories": ["Other", "Deep"]},
   {"name": "Idle", "color": "transparent", "subcategories": ["Other"]}],
  "markerSchema": [{"name": "Text", "display": ["marker-chart"], "data": [{"key": "name", "format": "unique-string"}]}]},
 "libs": [{"start": 8192, "end": 12288, "offset": 16, "name": "lib", "path": "/lib", "debugName": "lib",
   "debugPath": "/lib", "breakpadId": "AB0", "codeId": "ab", "arch": "x86_64"},
  {"start": 4096, "end": 8192, "offset": 0, "name": "demo", "path": "/demo", "debugName": "demo",
   "debugPath": "/demo", "breakpadId": "CD0"}],
 "pages": [], "pausedRanges": [{"startTime": 3, "endTime": 4, "reason": "collecting"}],
 "profilerOverhead": {"samples": {"schema": {"time": 0}, "data": []}},
 "profilingLog": {"7": {"key": 1}},
 "counters": [{"name": "malloc", "category": "Memory", "description": "bytes",
  "samples": {"schema": {"time": 0, "count": 1, "number": 2}, "data": [[1, 5, 2], [2.5, -3, 1]]}}],
 "threads": [{"name": "GeckoMain", "processType": "default", "processName": "demo", "tid": 7, "pid": 7,
  "registerTime": 0.25, "unregisterTime": null,
  "samples": {"schema": {"stack": 0, "time": 1, "eventDelay": 2, "threadCPUDelta": 3},
   "data": [[2, 1], [null, 2, null, 3], [4, 3.000001, 0.5, 1.5], [1, 4]]},
  "markers": {"schema": {"name": 0, "startTime": 1, "endTime": 2, "phase": 3, "category": 4, "data": 5},
   "data": [[6, 1, null, 0, 0], [6, 1.5, 2, 1, 1, {"type": "Text", "name": 7, "count": 3, "share": 0.5,
     "list": [1, {"a": null}], "ok": true, "none": null, "stack": {"name": "SyncProfile",
      "samples": {"schema": {"stack": 0, "time": 1}, "data": [[2, 1.25]]}}}],
    [6, null, 3, 3, 0, {"type": "Log", "stack": "a text"}]]},
  "frameTable": {"schema": {"location": 0, "relevantForJS": 1, "innerWindowID": 2, "implementation": 3,
    "line": 4, "column": 5, "category": 6, "subcategory": 7},
   "data": [[0], [1], [2, true, 5, null, null, null, 0, 1], [3], [4, false, 0, 8, 12, 3, 1]]},
  "stackTable": {"schema": {"frame": 0, "prefix": 1}, "data": [[0], [1, 0], [1, 1], [2, 1], [4, 3]]},
  "stringTable": ["(root)", "0x2008", "a label", "main (in demo)", "run (a.js:3:4)", "x", "marker",
   "text \"\u00e4\" \ud800", "ion"]}],
 "processes": [{"meta": {"version": 36, "startTime": 1500, "shutdownTime": 700,
   "categories": [{"name": "Idle", "color": "transparent", "subcategories": ["Own"]}], "markerSchema": []},
  "libs": [], "pages": [], "pausedRanges": [], "processes": [],
  "threads": [{"name": "child", "processType": "tab", "tid": "8-1", "pid": "8-1", "registerTime": -600,
   "samples": {"schema": {"stack": 0, "time": 1}, "data": [[0, 20], [0, 10]]},
   "markers": {"schema": {"name": 0, "startTime": 1, "endTime": 2, "phase": 3, "category": 4, "data": 5},
    "data": [[1, 5, null, 2, 0, {"type": "Network", "startTime": 5, "fetchStart": 1, "connectEnd": 5.5}]]},
   "frameTable": {"schema": {"location": 0, "category": 6, "subcategory": 7},
    "data": [[0, false, 0, null, null, null, 0, 0]]},
   "stackTable": {"schema": {"prefix": 0, "frame": 1}, "data": [[null, 0]]},
   "stringTable": ["work (in libc.so) (a.c:7)", "load"]}]}]}"#;

/// A profile of the processed format of a current version, with an inlined function.
const PROCESSED: &str = r#"{
 "meta": {"version": 36, "preprocessedProfileVersion": 75, "startTime": 5, "interval": 2, "product": "demo",
  "symbolicated": true, "categories": [{"name": "Other", "color": "grey", "subcategories": ["Other", "Deep"]}],
  "markerSchema": [{"name": "Text", "description": "A text", "display": [], "fields": [{"key": "name", "format": "unique-string"}]}]},
 "libs": [{"name": "demo", "path": "/demo", "debugName": "demo", "debugPath": "/demo", "breakpadId": "CD0", "codeId": null, "arch": ""}],
 "pages": [], "counters": [{"name": "malloc", "category": "Memory", "description": "", "pid": "7", "mainThreadIndex": 0,
   "samples": {"timeDeltas": [1, 2], "count": [5, -1], "length": 2}}],
 "shared": {"stringArray": ["main", "inlined", "0x20", "a.rs", "marker", "text", "demo"],
  "sources": {"length": 1, "id": [null], "filename": [3], "content": ["fn main() {}"]},
  "resourceTable": {"length": 1, "name": [6], "host": [null], "type": [1]},
  "funcTable": {"length": 3, "name": [0, 1, 2], "isJS": [false, false, false], "relevantForJS": [false, false, false],
   "resource": [0, 0, 0], "source": [0, 0, null], "lineNumber": [1, null, null], "columnNumber": [null, null, null]},
  "nativeSymbols": {"length": 1, "libIndex": [0], "address": [16], "name": [0], "functionSize": [32]},
  "frameTable": {"length": 3, "func": [0, 1, 2], "address": [24, 24, 32], "lib": [0, 0, 0], "inlineDepth": [0, 1, 0],
   "nativeSymbol": [0, 0, null], "category": [0, null, null], "subcategory": [1, null, null], "line": [4, 9, null],
   "column": [null, null, null], "innerWindowID": [0, 0, 0]},
  "stackTable": {"length": 3, "frame": [0, 1, 2], "prefixOffset": [0, 1, 2]}},
 "threads": [{"name": "main", "isMainThread": true, "pid": "7", "tid": 7, "processName": "demo", "processType": "default",
  "processStartupTime": 0, "processShutdownTime": null, "registerTime": 0, "unregisterTime": null, "pausedRanges": [],
  "samples": {"length": 3, "stack": [1, null, 2], "timeDeltas": [1, 0.5, 0.25], "weight": [1, 2, 3], "weightType": "samples"},
  "markers": {"length": 2, "name": [4, 4], "startTime": [1, null], "endTime": [null, 2], "phase": [0, 3], "category": [0, 0],
   "data": [{"type": "Text", "name": 5, "cause": {"tid": 7, "time": 1, "stack": 1}}, null]},
  "nativeAllocations": {"length": 1, "time": [1.5], "weight": [64], "weightType": "bytes", "stack": [1], "memoryAddress": [99], "threadId": [7]}}]}"#;

fn read(text: &str) -> ProfileModel {
    read_profile_from(text.as_bytes()).expect("a profile")
}

/// Returns the message of the error that a text causes.
fn message(text: &str) -> String {
    let error = read_profile_from(text.as_bytes()).expect_err("no profile");
    error.to_string()
}

/// Returns all that a thread's rows refer to, in words.
fn described(profile: &ProfileModel) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    let frames = |stack: Option<StackId>| {
        let frames = profile.stack_frames(stack).map(|frame| {
            let frame = profile.frame(frame);
            let function = profile.function(frame.function);
            let name = profile.text(function.name);
            let module = function.module.map(|module| &profile.module(module).name);
            let file = function.file.map(|file| profile.text(file));
            let implementation = frame.implementation.map(|name| profile.text(name));
            format!(
                "{name} {:?} {module:?} {file:?} {:?}:{:?} {:?} at {:?}:{:?} {:?} {} {implementation:?}",
                function.kind,
                function.line,
                function.column,
                frame.address,
                frame.line,
                frame.column,
                frame.category,
                frame.inner_window_id,
            )
        });
        frames.collect::<Vec<_>>().join("; ")
    };
    for thread in &profile.threads {
        let Thread { name, tid, .. } = thread;
        let times = (thread.registered_ns, thread.unregistered_ns);
        let _ = writeln!(text, "thread {} {name} {tid} {times:?}", thread.process);
        for sample in thread.samples.iter() {
            let stack = frames(sample.stack);
            let plain = crate::model::Sample {
                stack: None,
                ..sample
            };
            let _ = writeln!(text, "{plain:?} {stack}");
        }
        for marker in thread.markers.iter() {
            let name = profile.text(marker.name);
            let times = (marker.start_ns, marker.end_ns);
            let _ = writeln!(
                text,
                "{name} {:?} {times:?} {}",
                marker.phase, marker.category
            );
            let Some(payload) = marker.payload else {
                continue;
            };
            let _ = writeln!(text, "  {}", profile.text(payload.type_name));
            for &(key, value) in payload.fields {
                let key = profile.text(key);
                let _ = match value {
                    FieldValue::Text(id) => writeln!(text, "  {key} {:?}", profile.text(id)),
                    FieldValue::UniqueText(id) => {
                        writeln!(text, "  {key} unique {:?}", profile.text(id))
                    }
                    FieldValue::Json(id) => writeln!(text, "  {key} JSON {}", profile.text(id)),
                    value => writeln!(text, "  {key} {value:?}"),
                };
            }
            if let Some((stack, time_ns)) = payload.stack {
                let _ = writeln!(text, "  stack at {time_ns}: {}", frames(Some(stack)));
            }
        }
    }
    let _ = writeln!(text, "{:?} {:?}", profile.counters, profile.processes);
    let _ = writeln!(
        text,
        "{:?} {:?}",
        profile.categories, profile.marker_schemas
    );
    let _ = writeln!(text, "{:?}", profile.meta);
    text
}

/// Returns the part of [`described`] before the categories, with nothing for empty lists.
fn rows_of(profile: &ProfileModel) -> String {
    let text = described(profile);
    let text = &text[..text.find("[Category").expect("categories")];
    text.replace("\"[]\"", "\"\"").replace("\"{}\"", "\"\"")
}

fn to_processed(profile: &ProfileModel) -> String {
    let mut out = Vec::new();
    let options = ExportOptions::default();
    write_profile(profile, Format::Processed, &options, &mut out).expect("a vector");
    String::from_utf8(out).expect("UTF-8")
}

/// Returns the frames of a sample as names with addresses, the innermost first.
fn addresses(profile: &ProfileModel, sample: usize) -> Vec<(String, Option<u64>)> {
    let stack = profile.threads[0].samples.get(sample).stack;
    let frames = profile.stack_frames(stack);
    frames
        .map(|frame| {
            let frame = profile.frame(frame);
            let name = profile.function_name(frame.function);
            (name.to_owned(), frame.address)
        })
        .collect()
}

#[test]
fn gecko_profile_is_read_with_all_parts() {
    let profile = read(GECKO);
    let named = |name: &str, address| (name.to_owned(), address);
    // The innermost address is in `lib`. The caller's one is lowered to the call.
    assert_eq!(
        addresses(&profile, 0),
        [
            named("0x18", Some(0x18)),
            named("0x17", Some(0x17)),
            named("(root)", None)
        ]
    );
    let text = described(&profile);
    for expected in [
        "thread 0 GeckoMain 7 (Some(250000), None)",
        "time_ns: 3000001, cpu_delta_ns: Some(1500), event_delay_ns: Some(500000)",
        "run Script None Some(\"a.js\") Some(3):Some(4) None at Some(12):Some(3)",
        "a label Label",
        "name unique \"text \\\"ä\\\" \u{fffd}",
        "list JSON [1, {\"a\": null}]",
        "stack \"a text\"",
        "stack at 1250000: 0x17 Native Some(\"lib\")",
        // The times of the child are those of the profile, and its samples are in order.
        "thread 1 child 8-1 (Some(-100000000), None)\nSample { stack: None, time_ns: 510000000",
        "work Native Some(\"libc.so\") Some(\"a.c\") None:None None at Some(7):None \
         Some(CategoryPair { category: 1, subcategory: 1 })",
        "connectEnd Number(505.5)",
        "fetchStart Integer(1)",
        "started_ns: Some(500000000), ended_ns: Some(1200000000)",
    ] {
        assert!(text.contains(expected), "{expected} is not in:\n{text}");
    }
    assert_eq!(profile.meta.session_ns, Some((0, 9_500_000)));
    let phases = profile.threads[0].markers.iter().map(|marker| marker.phase);
    assert!(phases.eq([
        MarkerPhase::Instant,
        MarkerPhase::Interval,
        MarkerPhase::IntervalEnd
    ]));
}

#[test]
fn written_profile_reads_back_as_the_same_model() {
    for text in [GECKO, PROCESSED] {
        let profile = read(text);
        // In this format, the engine of a script frame is a subcategory.
        let expected = rows_of(&profile)
            .replace(
                "subcategory: 0 }) 0 Some(\"ion\")",
                "subcategory: 2 }) 0 None",
            )
            .replace("Number(505.0)", "Integer(505)");
        assert_eq!(rows_of(&read(&to_processed(&profile))), expected);
    }
}

#[test]
fn processed_profile_is_read_with_inlined_functions() {
    let profile = read(PROCESSED);
    let stack = profile.threads[0].samples.get(0).stack;
    let frames: Vec<_> = profile.stack_frames(stack).collect();
    let [inlined, outer] = frames[..] else {
        panic!("{frames:?}")
    };
    let (inlined, outer) = (profile.frame(inlined), profile.frame(outer));
    assert_eq!((inlined.inline_depth, inlined.line), (1, Some(9)));
    assert_eq!((outer.address, outer.native_symbol), (Some(24), Some(0)));
    assert_eq!(profile.function(outer.function).kind, FunctionKind::Native);
    let file = profile.function(outer.function).file.expect("a file");
    assert_eq!(profile.sources[&file].0, "fn main() {}");
    let weights = profile.threads[0]
        .samples
        .iter()
        .map(|sample| sample.weight);
    assert!(weights.eq([1, 2, 3]));
    let module = &profile.modules[0];
    assert!(module.start < module.end && module.end - module.start >= 48);
    assert_eq!(profile.counters[0].samples[1].time_ns, 3_000_000);

    let named = |name: &str, address| (name.to_owned(), Some(address));
    assert_eq!(
        addresses(&profile, 0),
        [named("inlined", 24), named("main", 24)]
    );
    assert_eq!(
        addresses(&profile, 2),
        [named("0x20", 32), named("main", 24)]
    );
    let text = described(&profile);
    for expected in [
        "{ stack: None, time_ns: 1750000, cpu_delta_ns: None, event_delay_ns: None, weight: 3 }",
        "name unique \"text\"",
        "Native allocation Instant (Some(1500000), None) 0",
        "memoryAddress Integer(99)",
        "inlined Native Some(\"demo\") Some(\"a.rs\")",
        "\\\"description\\\": \\\"A text\\\"",
    ] {
        assert!(text.contains(expected), "{expected} is not in:\n{text}");
    }
}

#[test]
fn tables_of_a_thread_and_prefixes_are_read_as_before_version_56() {
    let text = PROCESSED.replace("\"shared\": {", "\"unused\": {").replace(
        "\"preprocessedProfileVersion\": 75",
        "\"preprocessedProfileVersion\": 55",
    );
    let start = PROCESSED.find("\"stringArray\"").expect("strings");
    let end = PROCESSED.find("},\n \"threads\"").expect("threads");
    let tables = PROCESSED[start..end]
        .replace("\"prefixOffset\": [0, 1, 2]", "\"prefix\": [null, 0, 0]")
        .replace("\"source\": [0, 0, null]", "\"fileName\": [3, 3, null]")
        .replace("\"lib\": [0, 0, 0], ", "")
        .replace("\"host\"", "\"lib\": [0], \"host\"");
    let head = "\"threads\": [{";
    let old = read(&text.replace(head, &format!("{head}{tables}, ")));
    assert_eq!(rows_of(&old), rows_of(&read(PROCESSED)));
}

#[test]
fn errors_name_the_place_and_what_was_expected() {
    let without = "got JSON without \"meta.version\", expected a profile of gekkota or Firefox";
    let gecko = |from: &str, to: &str| message(&GECKO.replacen(from, to, 1));
    for (got, expected) in [
        (message("{}"), without),
        (message("[1]"), without),
        (message("{\"meta\": 1}"), without),
        (message(""), "got text that is not JSON (EOF while parsing"),
        (
            gecko("[[2, 1],", "[[\"x\", 1],"),
            "threads[0].samples.data[0][0]: got \"x\", expected a stack index below 5",
        ),
        (
            gecko("[1, 0], [1, 1]", "[1, 1], [1, 1]"),
            "threads[0].stackTable.data[1][1]: got 1, expected an earlier stack index below 1",
        ),
        (
            gecko("[[0], [1],", "[[], [1],"),
            "threads[0].frameTable.data[0][0]: got nothing, expected a string index",
        ),
        (
            gecko("\"time\": 1, ", ""),
            "threads[0].samples.schema.time: got nothing, expected the number of a column",
        ),
        (
            gecko("[0, 20]", "[0, 1e300]"),
            "processes[0].threads[0].samples.data[0][1]: got 1e300, expected a time in ms",
        ),
        (
            gecko("\"start\": 8192, ", ""),
            "libs[0].start: got nothing, expected an address",
        ),
        (
            gecko("[6, 1, null, 0, 0]", "[6, 1, null, 1, 0]"),
            "threads[0].markers.data[0][3]: got 1, expected a phase that needs no endTime",
        ),
        (
            message(&PROCESSED.replace("[0, 1, 2]}}", "[0, 2, 2]}}")),
            "shared.stackTable.prefixOffset[1]: got 2, expected the distance of an earlier stack \
             below 2",
        ),
        (
            message(&PROCESSED.replace("[1, 0.5, 0.25]", "[1]")),
            "threads[0].samples: got 1 times, expected 3, as in the other columns",
        ),
    ] {
        let expected = format!("cannot read the profile: {expected}");
        assert!(got.starts_with(&expected), "{got}");
    }
}

#[test]
fn processes_within_processes_are_bounded() {
    let nested = |levels: usize| {
        let head = "{\"meta\": {\"version\": 36}, \"threads\": [], \"processes\": [";
        format!("{}{}", head.repeat(levels), "]}".repeat(levels))
    };
    let most = MAX_PROCESS_LEVELS + 1;
    assert_eq!(read(&nested(most)).processes.len(), most);
    let error = read_profile_from(nested(most + 1).as_bytes()).expect_err("too deep");
    assert!(matches!(error, ReadError::TooDeep { max_levels, .. } if max_levels == most));
    // Deep values elsewhere take no stack.
    let deep = "[".repeat(1 << 20);
    assert!(message(&deep).contains("not JSON"));
}

#[cfg(feature = "gzip")]
#[test]
fn gzip_is_recognized_by_content_and_damage_is_an_error() {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(GECKO.as_bytes()).expect("a vector");
    let bytes = encoder.finish().expect("a vector");
    let expected = described(&read(GECKO));
    let profile = read_profile_from(&*bytes).expect("a profile");
    assert_eq!(described(&profile), expected);
    let cut = read_profile_from(&bytes[..bytes.len() / 2]);
    assert!(matches!(cut, Err(ReadError::DamagedGzip(_))));
}

#[cfg(not(feature = "gzip"))]
#[test]
fn gzip_needs_its_feature() {
    let error = read_profile_from(&[0x1f, 0x8b, 8][..]).expect_err("gzip data");
    assert!(matches!(error, ReadError::NoGzip));
}

#[test]
fn missing_file_is_named() {
    let path = std::path::Path::new("/no/such/profile.json");
    let error = read_profile_file(path).expect_err("no file");
    let message = error.to_string();
    assert!(
        message.starts_with("cannot read the profile /no/such/profile.json: "),
        "{message}"
    );
}

/// A deterministic generator of numbers below a limit.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// Whatever the bytes are, the reader returns an error, or a profile that can be written.
#[test]
fn mutated_profiles_are_errors_or_profiles() {
    const PARTS: &[&str] = &[
        "null",
        "-1",
        "0",
        "1",
        "99",
        "1e300",
        "-1e300",
        "18446744073709551615",
        "\"x\"",
        "\"\\ud800\"",
        "[]",
        "{}",
        "true",
        "[[]]",
        "{\"schema\":{},\"data\":[[]]}",
        ",",
        "]",
        "0x",
        "\"0xffffffffffffffff\"",
    ];
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut read_ones = 0;
    for round in 0..1200 {
        let base = [GECKO, PROCESSED][round % 2];
        let mut bytes = base.as_bytes().to_vec();
        for _ in 0..=numbers.below(3) {
            let at = numbers.below(bytes.len());
            if round % 3 == 0 {
                bytes[at] = numbers.below(256) as u8;
                continue;
            }
            // Replaces a number, which is most likely an index, a time, or a length.
            let is_digit = |byte: &u8| byte.is_ascii_digit();
            let Some(start) = bytes[at..].iter().position(is_digit) else {
                continue;
            };
            let start = at + start;
            let length = bytes[start..]
                .iter()
                .take_while(|byte| is_digit(byte))
                .count();
            let part = PARTS[numbers.below(PARTS.len())].bytes();
            bytes.splice(start..start + length, part);
        }
        if let Ok(profile) = read_profile_from(&*bytes) {
            read_ones += 1;
            described(&profile);
            read_profile_from(to_processed(&profile).as_bytes()).expect("a written profile");
        }
    }
    assert!((100..1100).contains(&read_ones), "{read_ones}");
}
