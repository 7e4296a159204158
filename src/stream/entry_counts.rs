//! What a buffer is full of, for the profile's report of itself.

use crate::json::JsonWriter;

macro_rules! sorts {
    ($($(#[$doc:meta])* $sort:ident $name:literal,)+) => {
        /// What an entry is, as far as its size goes.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(super) enum EntrySort {
            $($(#[$doc])* $sort,)+
        }

        const NAMES: &[&str] = &[$($name,)+];
    };
}

sorts! {
    /// A sample that brings frames that its chunk has not.
    Sample "sample",
    /// One whose stack its chunk has.
    RepeatedSample "repeated_sample",
    /// One with its thread's last stack.
    SameSample "same_sample",
    /// One that stands for others, too: of a thread at rest.
    Run "run",
    Marker "marker",
    Backtrace "backtrace",
    Counter "counter",
    Overhead "overhead",
    EventProbe "event_probe",
    Pause "pause",
    Modules "modules",
}

/// How many entries of each sort there are, and their bytes.
#[derive(Clone, Debug)]
pub(super) struct EntryCounts {
    counts: [(u64, u64); NAMES.len()],
    /// Entries that could not be read.
    pub(super) malformed: u64,
}

impl Default for EntryCounts {
    fn default() -> Self {
        Self {
            counts: [(0, 0); NAMES.len()],
            malformed: 0,
        }
    }
}

impl EntryCounts {
    pub(super) fn add(&mut self, sort: EntrySort, bytes: u64) {
        let (count, sum) = &mut self.counts[sort as usize];
        *count += 1;
        *sum += bytes;
    }

    pub(super) fn count_of(&self, sort: EntrySort) -> u64 {
        self.counts[sort as usize].0
    }

    pub(super) fn write(&self, json: &mut JsonWriter<'_>) {
        json.object(|json| {
            for (name, (count, bytes)) in NAMES.iter().zip(&self.counts) {
                json.key(name).object(|json| {
                    json.key("count").unsigned(*count);
                    json.key("bytes").unsigned(*bytes);
                });
            }
        });
    }
}
