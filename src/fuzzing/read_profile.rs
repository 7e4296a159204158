//! Checks the JSON text of a profile with an independent parser.

use std::collections::HashMap;

use serde_json::Value;

/// The checked content of a valid profile.
#[derive(Debug)]
pub(crate) struct ReadProfile {
    /// Times of each thread's samples, in nanoseconds, by the name of the thread.
    pub(crate) threads: HashMap<String, Vec<f64>>,
    /// Number of rows that were left out because of a limit.
    pub(crate) left_out_rows: u64,
    /// Ticks without samples for which rows are repeated.
    pub(crate) left_out_ticks: u64,
    pub(crate) malformed_entries: u64,
}

/// A table of a profile, with its columns by name.
struct Table<'v> {
    columns: HashMap<&'v str, usize>,
    rows: &'v [Value],
}

impl<'v> Table<'v> {
    fn of(owner: &'v Value, name: &str) -> Self {
        let table = &owner[name];
        let schema = table["schema"]
            .as_object()
            .unwrap_or_else(|| panic!("{name} has no schema"));
        let number = |value: &Value| value.as_u64().expect("a column's number") as usize;
        let columns = schema
            .iter()
            .map(|(column, value)| (column.as_str(), number(value)))
            .collect();
        let rows = table["data"]
            .as_array()
            .unwrap_or_else(|| panic!("{name} has no rows"));
        Self { columns, rows }
    }

    /// Returns a value of a row; trailing values may be missing.
    fn at(&self, row: usize, column: &str) -> Option<&'v Value> {
        let row = self.rows[row].as_array().expect("a row");
        assert!(row.len() <= self.columns.len(), "{row:?}");
        row.get(self.columns[column])
            .filter(|value| !value.is_null())
    }

    /// Returns an index, if present. Panics unless it is below `end`.
    fn index(&self, row: usize, column: &str, end: usize) -> Option<usize> {
        self.at(row, column).map(|value| index_below(value, end))
    }
}

fn index_below(value: &Value, end: usize) -> usize {
    let index = value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is not an index")) as usize;
    assert!(index < end, "index {index} is not below {end}");
    index
}

fn rows_of<'v>(owner: &'v Value, name: &str) -> &'v [Value] {
    owner[name]
        .as_array()
        .unwrap_or_else(|| panic!("{name} is not an array"))
}

impl ReadProfile {
    /// Reads a profile. Panics if the text is not JSON, an index is out of range, or a stack comes
    /// before its prefix.
    pub(crate) fn check(text: &[u8]) -> Self {
        let profile: Value = serde_json::from_slice(text).expect("JSON");
        let meta = &profile["meta"];
        let categories: Vec<usize> = rows_of(meta, "categories")
            .iter()
            .map(|category| rows_of(category, "subcategories").len())
            .collect();
        let threads = rows_of(&profile, "threads").iter().map(|thread| {
            let name = thread["name"].as_str().expect("a name").to_owned();
            (name, check_thread(thread, &categories))
        });
        let loss = |name: &str| meta["losses"][name].as_u64().expect("a count");
        let ticks = Table::of(&profile["profilerOverhead"], "samples");
        (0..ticks.rows.len()).for_each(|row| _ = time_ns(ticks.at(row, "time")));
        for counter in rows_of(&profile, "counters") {
            let samples = Table::of(counter, "samples");
            (0..samples.rows.len()).for_each(|row| _ = time_ns(samples.at(row, "time")));
        }
        Self {
            threads: threads.collect(),
            left_out_rows: loss("left_out_idle_rows"),
            left_out_ticks: loss("left_out_ticks"),
            malformed_entries: loss("malformed_entries"),
        }
    }
}

fn time_ns(ms: Option<&Value>) -> f64 {
    let ns = ms.and_then(Value::as_f64).expect("a time") * 1e6;
    assert!((0.0..2e19).contains(&ns), "{ns}");
    ns
}

fn check_thread(thread: &Value, categories: &[usize]) -> Vec<f64> {
    let strings = rows_of(thread, "stringTable");
    assert!(strings.iter().all(Value::is_string));
    let [samples, markers, stacks, frames] =
        ["samples", "markers", "stackTable", "frameTable"].map(|name| Table::of(thread, name));
    for row in 0..frames.rows.len() {
        frames
            .index(row, "location", strings.len())
            .expect("a location");
        if let Some(category) = frames.index(row, "category", categories.len()) {
            frames
                .index(row, "subcategory", categories[category])
                .expect("a subcategory");
        }
    }
    for row in 0..stacks.rows.len() {
        stacks
            .index(row, "frame", frames.rows.len())
            .expect("a frame");
        // A stack's prefix comes before it.
        stacks.index(row, "prefix", row);
    }
    for row in 0..markers.rows.len() {
        markers.index(row, "name", strings.len()).expect("a name");
        markers.index(row, "phase", 4).expect("a phase");
        markers
            .index(row, "category", categories.len())
            .expect("a category");
        time_ns(markers.at(row, "startTime"));
        if let Some(data) = markers.at(row, "data") {
            assert!(data["type"].is_string(), "{data}");
            if data["type"] == "Text" {
                index_below(&data["name"], strings.len());
            }
            if !data["stack"].is_null() {
                let stack = Table::of(&data["stack"], "samples");
                stack.index(0, "stack", stacks.rows.len()).expect("a stack");
                time_ns(stack.at(0, "time"));
            }
        }
    }
    let of_sample = |row| {
        samples
            .index(row, "stack", stacks.rows.len())
            .expect("a stack");
        time_ns(samples.at(row, "time"))
    };
    (0..samples.rows.len()).map(of_sample).collect()
}
