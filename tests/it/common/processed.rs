//! Shows a profile that was read from a file as if it were in Gecko's JSON.

use gekkota::Profile;
use gekkota::profile::Format;
use serde_json::{Value, json};

use crate::common::Read;

/// Columns of a thread's tables in Gecko's form, in the order of its readers.
const SAMPLES: [&str; 5] = ["stack", "time", "eventDelay", "threadCPUDelta", "weight"];
const MARKERS: [&str; 6] = ["name", "startTime", "endTime", "phase", "category", "data"];

fn index(value: &Value) -> usize {
    value.as_u64().expect("an index") as usize
}

/// Returns a table in Gecko's form, which has rows instead of columns.
fn rows(table: &Value, keys: &[&str]) -> Value {
    let row = |row: usize| -> Value { keys.iter().map(|key| table[*key][row].clone()).collect() };
    let data: Vec<Value> = (0..index(&table["length"])).map(row).collect();
    let columns = keys.iter().enumerate();
    let schema = columns.map(|(column, key)| ((*key).to_owned(), column.into()));
    json!({ "schema": Value::Object(schema.collect()), "data": data })
}

impl Read {
    /// Writes a profile that was read from a file in the processed format, and shows its threads.
    pub fn of_file(profile: &Profile) -> Self {
        let mut text = Vec::new();
        profile
            .write(Format::Processed, &mut text)
            .expect("a vector never fails");
        let mut file: Value = serde_json::from_slice(&text).expect("JSON");
        let (shared, libs) = (file["shared"].take(), file["libs"].take());

        let mut strings = shared["stringArray"].as_array().expect("strings").clone();
        let mut frames = shared["frameTable"].clone();
        // The locations follow the strings: `function`, or `function (in library)`.
        let first_location = strings.len();
        let functions = frames["func"].as_array().expect("functions");
        for (frame, function) in functions.iter().enumerate() {
            let name = index(&shared["funcTable"]["name"][index(function)]);
            let name = strings[name].as_str().expect("a text").to_owned();
            let library = frames["lib"][frame].as_u64();
            let library = library.map(|library| &libs[library as usize]["name"]);
            strings.push(match library.and_then(Value::as_str) {
                Some(library) => format!("{name} (in {library})").into(),
                None => name.into(),
            });
        }
        frames["location"] = (first_location..strings.len()).collect();
        let mut stacks = shared["stackTable"].clone();
        let distances = stacks["prefixOffset"].as_array().expect("distances");
        let prefixes = distances.iter().enumerate();
        let prefixes = prefixes.map(|(stack, distance)| match index(distance) {
            0 => Value::Null,
            distance => (stack - distance).into(),
        });
        stacks["prefix"] = prefixes.collect();

        for thread in file["threads"].as_array_mut().expect("threads") {
            let mut time_ns = 0;
            let deltas = thread["samples"]["timeDeltas"].as_array();
            let times = deltas.expect("times").iter().map(|delta_ms| {
                time_ns += (delta_ms.as_f64().expect("a time") * 1e6).round() as i64;
                time_ns as f64 / 1e6
            });
            thread["samples"]["time"] = times.collect();
            // Without weights, each sample counts once.
            if thread["samples"]["weight"].is_null() {
                let length = index(&thread["samples"]["length"]);
                thread["samples"]["weight"] = vec![1; length].into();
            }
            thread["samples"] = rows(&thread["samples"], &SAMPLES);
            thread["markers"] = rows(&thread["markers"], &MARKERS);
            thread["stackTable"] = rows(&stacks, &["prefix", "frame"]);
            thread["frameTable"] = rows(&frames, &["location"]);
            thread["stringTable"] = strings.clone().into();
        }
        for schema in file["meta"]["markerSchema"].as_array_mut().expect("types") {
            schema["data"] = schema["fields"].take();
        }
        Self(file)
    }
}
