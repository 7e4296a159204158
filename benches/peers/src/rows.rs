//! The rows of a Gecko profile in memory, as a reader of profiles would keep them, without markers.

use gekkota::Profile;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::profile::write_nameless;
use crate::study::Fallible;

#[derive(Deserialize, Serialize)]
pub(crate) struct Rows {
    meta: Value,
    libs: Value,
    #[serde(default)]
    counters: Vec<Counter>,
    threads: Vec<Thread>,
    #[serde(rename = "profilingLog")]
    log: Value,
}

#[derive(Deserialize, Serialize)]
struct Counter {
    name: String,
    category: String,
    description: String,
    samples: Table<(f64, i64)>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Thread {
    name: String,
    samples: Table<SampleRow>,
    stack_table: Table<StackRow>,
    frame_table: Table<FrameRow>,
    string_table: Vec<String>,
}

#[derive(Deserialize, Serialize)]
struct Table<T> {
    schema: Value,
    data: Vec<T>,
}

/// Stack, time, event delay and CPU delta; trailing ones may be missing.
#[derive(Deserialize, Serialize)]
struct SampleRow(
    u32,
    f64,
    #[serde(default)] Option<f64>,
    #[serde(default)] Option<u64>,
);

/// A stack's prefix, and its innermost frame.
#[derive(Deserialize, Serialize)]
struct StackRow(Option<u32>, u32);

/// Location, relevance for JavaScript, window, implementation, line, column, category, subcategory.
#[derive(Deserialize, Serialize)]
struct FrameRow(
    u32,
    bool,
    u64,
    #[serde(default)] Option<u32>,
    #[serde(default)] Option<u32>,
    #[serde(default)] Option<u32>,
    #[serde(default)] Option<u32>,
    #[serde(default)] Option<u32>,
);

impl Rows {
    /// Reads the rows of a profile, with addresses in place of names.
    pub(crate) fn of(profile: &Profile) -> Fallible<Self> {
        let mut text = Vec::new();
        write_nameless(profile, &mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_rows_are_read_and_written_in_full() {
        let read = |text: &str| serde_json::from_str::<SampleRow>(text).expect("a row");
        assert_eq!(
            serde_json::to_string(&read("[3,1.5]")).expect("text"),
            "[3,1.5,null,null]"
        );
    }
}
