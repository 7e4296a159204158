//! The rows of a Gecko profile in memory, as a reader of profiles would keep them, without markers.

use std::error::Error;

use gekkota::Profile;
use gekkota::profile::{Format, SnapshotOptions, Symbolicate};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Deserialize, Serialize)]
pub(crate) struct Rows {
    pub(crate) meta: Value,
    libs: Value,
    #[serde(default)]
    counters: Vec<Counter>,
    pub(crate) threads: Vec<Thread>,
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
pub(crate) struct Thread {
    pub(crate) name: String,
    pub(crate) samples: Table<SampleRow>,
    pub(crate) stack_table: Table<StackRow>,
    pub(crate) frame_table: Table<FrameRow>,
    pub(crate) string_table: Vec<String>,
}

#[derive(Deserialize, Serialize)]
pub(crate) struct Table<T> {
    schema: Value,
    pub(crate) data: Vec<T>,
}

/// Stack, time, event delay and CPU delta; trailing ones may be missing.
#[derive(Deserialize, Serialize)]
pub(crate) struct SampleRow(
    pub(crate) u32,
    f64,
    #[serde(default)] Option<f64>,
    #[serde(default)] Option<u64>,
);

impl SampleRow {
    /// Returns the time in milliseconds since the process's start.
    pub(crate) fn time_ms(&self) -> f64 {
        self.1
    }

    /// Whether the thread is known not to have run since its previous sample.
    pub(crate) fn was_idle(&self) -> bool {
        self.3 == Some(0)
    }
}

/// A stack's prefix, and its innermost frame.
#[derive(Deserialize, Serialize)]
pub(crate) struct StackRow(pub(crate) Option<u32>, pub(crate) u32);

/// Location, relevance for JavaScript, window, implementation, line, column, category, subcategory.
#[derive(Deserialize, Serialize)]
pub(crate) struct FrameRow(
    u32,
    bool,
    u64,
    #[serde(default)] Option<u32>,
    #[serde(default)] Option<u32>,
    #[serde(default)] Option<u32>,
    #[serde(default)] Option<u32>,
    #[serde(default)] Option<u32>,
);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FrameKind {
    Native,
    Label,
    /// Not a frame of the thread, such as the root.
    Structure,
}

impl FrameRow {
    pub(crate) fn kind(&self, strings: &[String]) -> FrameKind {
        match strings.get(self.0 as usize) {
            _ if self.6.is_some() => FrameKind::Label,
            Some(location) if location.starts_with('(') => FrameKind::Structure,
            _ => FrameKind::Native,
        }
    }
}

impl Rows {
    /// Reads the rows of a profile, with addresses in place of names.
    pub(crate) fn of(profile: &Profile) -> Result<Self, Box<dyn Error>> {
        let mut text = Vec::new();
        let options = SnapshotOptions::default().symbolicate(Symbolicate::No);
        profile.write_with(Format::Gecko, &mut text, &options)?;
        Ok(serde_json::from_slice(&text)?)
    }

    pub(crate) fn samples(&self) -> impl Iterator<Item = &SampleRow> {
        self.threads.iter().flat_map(|thread| &thread.samples.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_rows_are_read_and_written_in_full() {
        let read = |text: &str| serde_json::from_str::<SampleRow>(text).expect("a row");
        assert!(read("[3,1.5,null,0]").was_idle());
        assert!(!read("[3,1.5,0.25,7]").was_idle() && !read("[3,1.5]").was_idle());
        assert_eq!(
            serde_json::to_string(&read("[3,1.5]")).expect("text"),
            "[3,1.5,null,null]"
        );
    }

    #[test]
    fn frame_kinds_are_distinguished() {
        let strings = ["(root)", "0x5512", "work"].map(str::to_owned);
        let kind = |text: &str| {
            serde_json::from_str::<FrameRow>(text)
                .expect("a frame")
                .kind(&strings)
        };
        assert_eq!(kind("[0,false,0]"), FrameKind::Structure);
        assert_eq!(kind("[1,false,0]"), FrameKind::Native);
        assert_eq!(kind("[2,false,0,null,null,null,1,0]"), FrameKind::Label);
    }
}
