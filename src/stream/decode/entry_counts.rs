//! Counts the buffer's entries and their bytes by class, for `profilingLog`.

use crate::json::JsonWriter;

macro_rules! classes {
    ($($(#[$doc:meta])* $class:ident $name:literal,)+) => {
        /// The class of an entry in `profilingLog`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum EntryClass {
            $($(#[$doc])* $class,)+
        }

        const NAMES: &[&str] = &[$($name,)+];
    };
}

classes! {
    /// A sample that defines frames or stacks that its chunk did not have yet.
    Sample "sample",
    /// A sample whose stack its chunk already has.
    RepeatedSample "repeated_sample",
    /// A sample with the same stack as the previous sample of its thread.
    SameSample "same_sample",
    /// A sample of an idle thread, together with its repeats.
    Run "run",
    Marker "marker",
    Backtrace "backtrace",
    Counter "counter",
    Overhead "overhead",
    EventProbe "event_probe",
    Pause "pause",
    Modules "modules",
    Wait "wait",
    TickGap "tick_gap",
}

/// Number of entries and bytes by class.
#[derive(Clone, Default, Debug)]
pub(crate) struct EntryCounts {
    counts: [(u64, u64); NAMES.len()],
    /// Number of entries that could not be read.
    pub(crate) malformed: u64,
    /// Number of samples and markers that belong to no thread of the profile.
    pub(crate) without_thread: u64,
}

impl EntryCounts {
    pub(crate) fn add(&mut self, class: EntryClass, bytes: u64) {
        let (count, sum) = &mut self.counts[class as usize];
        *count += 1;
        *sum += bytes;
    }

    pub(crate) fn count_of(&self, class: EntryClass) -> u64 {
        self.counts[class as usize].0
    }

    pub(crate) fn write(&self, json: &mut JsonWriter<'_>) {
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
