//! Reads profiles. The program and its tests share this file.
#![allow(dead_code, reason = "each of them uses some of the functions")]

use gekkota::ProfilerTime;
use gekkota::profile::{SnapshotOptions, Symbolicate};
use serde_json::Value;

/// Name of the track of the main thread.
pub const MAIN_THREAD: &str = "GeckoMain";
/// The variable that tells the program what to do.
pub const ROLE: &str = "EARLY_ROLE";
/// The variable that names a file for the program.
pub const FILE: &str = "EARLY_FILE";
/// The profiler's variable that leaves the start to `profiler_init`.
pub const NO_BASE: &str = "MOZ_PROFILER_STARTUP_NO_BASE";
/// A marker of a constructor that runs before the one that starts the profiler.
pub const TOO_EARLY: &str = "before the profiler";
/// A marker of a later constructor.
pub const BEFORE_MAIN: &str = "before main";
pub const IN_MAIN: &str = "in main";
pub const AFTER_END: &str = "after the session";
/// Number of samples that a piece of work waits for.
pub const ENOUGH: usize = 20;

/// A profile in Gecko's JSON.
#[derive(Debug)]
pub struct Read(pub Value);

fn rows<'a>(thread: &'a Value, table: &str) -> &'a [Value] {
    thread[table]["data"].as_array().expect("a table")
}

fn index(value: &Value) -> usize {
    value.as_u64().expect("an index") as usize
}

impl Read {
    pub fn from_text(text: &[u8]) -> Self {
        Self(serde_json::from_slice(text).expect("JSON"))
    }

    /// Reads the data of the running session, without names of functions.
    pub fn of_running() -> Self {
        Self::since(None)
    }

    /// Reads the data since a time, or all of it.
    pub fn since(start: Option<ProfilerTime>) -> Self {
        let options = SnapshotOptions::default().symbolicate(Symbolicate::No);
        let options = match start {
            Some(start) => options.since(start),
            None => options,
        };
        let mut text = Vec::new();
        gekkota::profiler_stream_json(&mut text, &options).expect("active");
        Self::from_text(&text)
    }

    /// Returns the only thread with the main thread's name.
    pub fn main_thread(&self) -> &Value {
        let threads = self.0["threads"].as_array().expect("threads");
        let named = threads
            .iter()
            .filter(|thread| thread["name"] == MAIN_THREAD);
        let named: Vec<_> = named.collect();
        assert_eq!(named.len(), 1, "one track of the main thread");
        named[0]
    }

    /// Returns the times of the main thread's samples, in ms.
    pub fn sample_times(&self) -> Vec<f64> {
        let samples = rows(self.main_thread(), "samples").iter();
        samples
            .map(|row| row[1].as_f64().expect("a time"))
            .collect()
    }

    /// Returns the number of the main thread's samples with a function on their stacks.
    pub fn samples_in(&self, function: &str) -> usize {
        let thread = self.main_thread();
        let has_function = |row: &&Value| {
            let mut stack = row[0].as_u64();
            while let Some(at) = stack {
                let row = &rows(thread, "stackTable")[at as usize];
                let frame = &rows(thread, "frameTable")[index(&row[1])];
                let location = thread["stringTable"][index(&frame[0])].as_str();
                if location.is_some_and(|location| location.contains(function)) {
                    return true;
                }
                stack = row[0].as_u64();
            }
            false
        };
        rows(thread, "samples").iter().filter(has_function).count()
    }

    /// Returns how many markers of the main thread have this name.
    pub fn markers_named(&self, name: &str) -> usize {
        let thread = self.main_thread();
        let is_named = |row: &&Value| thread["stringTable"][index(&row[0])] == name;
        rows(thread, "markers").iter().filter(is_named).count()
    }

    /// Returns a number of the sampler's part of the profiling log.
    pub fn count(&self, name: &str) -> u64 {
        let processes = self.0["profilingLog"].as_object().expect("a log");
        let log = processes.values().next().expect("one process");
        log["sampler"][name].as_u64().expect("a count")
    }
}
