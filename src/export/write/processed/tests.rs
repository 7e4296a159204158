//! Tests of the threads' samples and of the shared tables.

use serde_json::{Value, json};

use super::sample_model::sample_profile;
use super::*;
use crate::export::options::ExportOptions;
use crate::export::options::SampleWeight;
use crate::model::ProfileModel;
use crate::model::WeightUnit;

pub(crate) fn written(profile: &ProfileModel, options: &ExportOptions) -> Value {
    let mut out = Vec::new();
    write_processed(profile, options, &mut out).expect("a vector never fails");
    serde_json::from_slice(&out).expect("JSON")
}

pub(crate) fn sample_file() -> Value {
    written(&sample_profile().0, &ExportOptions::default())
}

pub(crate) fn string<'a>(file: &'a Value, index: &Value) -> &'a str {
    let index = index.as_u64().expect("an index") as usize;
    file["shared"]["stringArray"][index]
        .as_str()
        .expect("a string")
}

/// Returns the names of a stack's functions, the innermost one first.
pub(crate) fn names<'a>(file: &'a Value, stack: &Value) -> Vec<&'a str> {
    let shared = &file["shared"];
    let mut names = Vec::new();
    let mut next = stack.as_u64().expect("a stack") as usize;
    loop {
        let frame = shared["stackTable"]["frame"][next]
            .as_u64()
            .expect("a frame") as usize;
        let function = shared["frameTable"]["func"][frame]
            .as_u64()
            .expect("a function") as usize;
        names.push(string(file, &shared["funcTable"]["name"][function]));
        match shared["stackTable"]["prefixOffset"][next]
            .as_u64()
            .expect("an offset") as usize
        {
            0 => return names,
            offset => next -= offset,
        }
    }
}

/// Returns the values of a table's columns in the row of a frame, function or thread.
fn row(table: &Value, row: u64, keys: &[&str]) -> Vec<Value> {
    keys.iter()
        .map(|key| table[key][row as usize].clone())
        .collect()
}

fn assert_columns_have_equal_length(table: &Value, path: &str) {
    let columns = table.as_object().expect("a table");
    for (key, column) in columns.iter().filter(|(_, column)| column.is_array()) {
        let length = column.as_array().map(Vec::len);
        assert_eq!(table["length"], json!(length), "{path}.{key}");
    }
}

#[test]
fn every_table_has_columns_of_its_length() {
    let file = sample_file();
    for (name, table) in file["shared"].as_object().expect("tables") {
        if name != "stringArray" {
            assert_columns_have_equal_length(table, name);
        }
    }
    for thread in file["threads"].as_array().expect("threads") {
        for key in ["samples", "markers", "jsAllocations", "nativeAllocations"] {
            if let Some(table) = thread.get(key) {
                assert_columns_have_equal_length(table, key);
            }
        }
    }
    for counter in file["counters"].as_array().expect("counters") {
        assert_columns_have_equal_length(&counter["samples"], "counter");
    }
}

#[test]
fn inlined_frame_has_name_library_file_line_address_and_symbol() {
    let file = sample_file();
    let shared = &file["shared"];
    let stack = &file["threads"][0]["samples"]["stack"][1];
    let run_loop = "std::sys::backtrace::__rust_begin_short_backtrace::<f, ()>";
    assert_eq!(
        names(&file, stack),
        [
            "demo::parse",
            "demo::main",
            run_loop,
            "start_thread",
            "(root)"
        ]
    );
    let stack = stack.as_u64().expect("a stack") as usize;
    let frame = shared["stackTable"]["frame"][stack]
        .as_u64()
        .expect("a frame");
    let keys = [
        "address",
        "lib",
        "inlineDepth",
        "line",
        "column",
        "category",
        "subcategory",
        "nativeSymbol",
        "innerWindowID",
        "originalLocation",
    ];
    let expected = json!([0x123, 0, 1, 2, 7, 1, 1, 0, 0, null]);
    assert_eq!(json!(row(&shared["frameTable"], frame, &keys)), expected);
    let function = shared["frameTable"]["func"][frame as usize]
        .as_u64()
        .expect("a function");
    let keys = [
        "resource",
        "source",
        "isJS",
        "relevantForJS",
        "lineNumber",
        "columnNumber",
    ];
    let function = row(&shared["funcTable"], function, &keys);
    assert_eq!(json!(function[2..]), json!([false, false, null, null]));
    let resource = function[0].as_u64().expect("a resource");
    let resource = row(
        &shared["resourceTable"],
        resource,
        &["name", "type", "host"],
    );
    assert_eq!(string(&file, &resource[0]), "demo");
    assert_eq!(json!(resource[1..]), json!([1, null]));
    let source = function[1].as_u64().expect("a source");
    let source = row(
        &shared["sources"],
        source,
        &["filename", "content", "startLine", "id"],
    );
    assert_eq!(string(&file, &source[0]), "/src/parse.rs");
    assert_eq!(
        json!(source[1..]),
        json!(["fn parse() {\n    read();\n}\n", 1, null])
    );
    let symbol = row(
        &shared["nativeSymbols"],
        0,
        &["libIndex", "address", "functionSize", "name"],
    );
    assert_eq!(json!(symbol[..3]), json!([0, 0x100, 0x80]));
    assert_eq!(string(&file, &symbol[3]), "demo::main");
}

#[test]
fn script_frame_is_js_with_its_engine_as_subcategory() {
    let file = sample_file();
    let shared = &file["shared"];
    let stack = file["threads"][0]["samples"]["stack"][3]
        .as_u64()
        .expect("a stack") as usize;
    let frame = shared["stackTable"]["frame"][stack]
        .as_u64()
        .expect("a frame");
    let keys = [
        "address",
        "lib",
        "category",
        "subcategory",
        "innerWindowID",
        "func",
    ];
    let frame = row(&shared["frameTable"], frame, &keys);
    assert_eq!(json!(frame[..5]), json!([-1, -1, 2, 2, 9]));
    assert_eq!(
        file["meta"]["categories"][2]["subcategories"],
        json!(["Other", "interpreter", "jit"])
    );
    let function = frame[5].as_u64().expect("a function");
    let keys = ["isJS", "lineNumber", "columnNumber", "resource"];
    let function = row(&shared["funcTable"], function, &keys);
    assert_eq!(json!(function[..3]), json!([true, 3, 5]));
    let resource = function[3].as_u64().expect("a resource");
    let resource = row(
        &shared["resourceTable"],
        resource,
        &["name", "host", "type"],
    );
    assert_eq!(string(&file, &resource[0]), "https://rules.example:8080");
    assert_eq!(string(&file, &resource[1]), "rules.example:8080");
    assert_eq!(resource[2], 3);
}

#[test]
fn samples_have_time_deltas_and_cpu_times() {
    let file = sample_file();
    let thread = &file["threads"][2];
    assert_eq!(thread["samples"]["timeDeltas"], json!([-1.000005, 1]));
    assert_eq!(thread["samples"]["threadCPUDelta"], json!([null, 250_000]));
    assert_eq!(thread["samples"]["weight"], Value::Null);
    assert_eq!(thread["samples"]["weightType"], "samples");
    assert_eq!(thread["samples"].get("eventDelay"), None);
    assert_eq!(file["threads"][1]["samples"]["stack"][1], Value::Null);
}

#[test]
fn cpu_weight_counts_the_cpu_time_of_each_sample() {
    let (mut profile, _) = sample_profile();
    let options = ExportOptions {
        weight: SampleWeight::Cpu,
        ..ExportOptions::default()
    };
    let samples = &written(&profile, &options)["threads"][0]["samples"];
    assert_eq!(samples["weight"], json!([0.375, 0.375, 0.375, 0.375]));
    assert_eq!(samples["weightType"], "tracing-ms");
    profile.meta.has_cpu_deltas = false;
    profile.threads[0].samples.weight_unit = WeightUnit::Bytes;
    let samples = &written(&profile, &options)["threads"][0]["samples"];
    assert_eq!(samples["weight"], Value::Null);
    assert_eq!(samples["weightType"], "bytes");
}

#[test]
fn one_thread_is_written_with_its_own_rows_and_all_libraries() {
    let (profile, _) = sample_profile();
    let options = ExportOptions {
        thread: Some("helper".to_owned()),
        ..ExportOptions::default()
    };
    let file = written(&profile, &options);
    assert_eq!(file["threads"].as_array().map(Vec::len), Some(1));
    let shared = &file["shared"];
    let lengths = [
        "stackTable",
        "frameTable",
        "funcTable",
        "nativeSymbols",
        "sources",
    ];
    assert_eq!(
        lengths.map(|key| shared[key]["length"].clone()),
        [2, 2, 2, 0, 0]
    );
    assert_eq!(
        names(&file, &file["threads"][0]["samples"]["stack"][0]),
        ["read", "(root)"]
    );
    // The counters belong to a process without a written thread.
    assert_eq!(file["counters"], json!([]));
    // Both processes loaded the same file.
    let libs = file["libs"].as_array().expect("libs");
    let libs: Vec<_> = libs.iter().map(|lib| lib["name"].as_str()).collect();
    assert_eq!(libs, [Some("demo"), Some("libc.so.6")]);
    assert_eq!(shared["frameTable"]["lib"], json!([-1, 1]));
    assert_eq!(
        file["libs"][1]["breakpadId"],
        "0123456789ABCDEF0123456789ABCDEF0"
    );
    assert_eq!(
        file["libs"][1]["codeId"],
        "67452301ab89efcd0123456789abcdef"
    );
}

#[test]
fn folded_stacks_begin_inside_of_the_run_loop() {
    let (profile, _) = sample_profile();
    let options = ExportOptions {
        folds_runtime: true,
        ..ExportOptions::default()
    };
    let file = written(&profile, &options);
    let stacks = |thread: usize| &file["threads"][thread]["samples"]["stack"];
    assert_eq!(
        names(&file, &stacks(0)[1]),
        ["demo::parse", "demo::main", "(root)"]
    );
    // A sample in the run loop itself is not lost.
    assert_eq!(names(&file, &stacks(1)[0])[1], "(root)");
    assert_eq!(names(&file, &stacks(2)[0]), ["read", "(root)"]);
    let functions = file["shared"]["funcTable"]["name"]
        .as_array()
        .expect("names");
    assert!(
        functions
            .iter()
            .all(|name| string(&file, name) != "start_thread")
    );
}

#[test]
fn failure_of_the_output_is_returned() {
    let mut full = [0; 100];
    let failure = write_processed(
        &sample_profile().0,
        &ExportOptions::default(),
        &mut full.as_mut_slice(),
    );
    assert_eq!(
        failure.map_err(|failure| failure.kind()),
        Err(std::io::ErrorKind::WriteZero)
    );
}

#[test]
fn empty_profile_is_valid() {
    let file = written(&ProfileModel::default(), &ExportOptions::default());
    assert_eq!(file["threads"], json!([]));
    assert_eq!(file["shared"]["stackTable"]["length"], 0);
    assert_eq!(file["meta"]["categories"][0]["color"], "grey");
    assert_eq!(file["meta"].get("profilingStartTime"), None);
}
