//! A profile of this process without names.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::thread;

use gekkota::profile::{Format, SnapshotOptions, Symbolicate};
use gekkota::{
    AutoProfilerInit, Features, MarkerOptions, MarkerStack, ProfilerSession, StartParams,
    add_untyped_marker, gecko_profiler_category, register_thread,
};
use serde_json::Value;

/// The profile of a thread that ran `recorded_function`.
pub(crate) static RECORDING: LazyLock<Recording> = LazyLock::new(Recording::record);

/// The text of this file, which the debug information of the executable names.
pub(crate) const SOURCE: &str = include_str!("recording.rs");

pub(crate) struct Recording {
    pub(crate) path: PathBuf,
    pub(crate) file: Vec<u8>,
    /// The executable of this test in the profile's list of modules.
    pub(crate) module: Value,
    /// The recorded addresses in the executable, relative to its start.
    pub(crate) addresses: Vec<u64>,
}

/// Adds a marker with the stack of this function.
#[inline(never)]
fn recorded_function() {
    let options = MarkerOptions {
        stack: MarkerStack::Full,
        ..MarkerOptions::default()
    };
    add_untyped_marker("recorded", gecko_profiler_category!(Other), options);
    // So that the call above returns to this function.
    black_box(());
}

/// Returns whether the profile has a sample, and a marker with its stack.
fn is_complete(profile: &Value) -> bool {
    let threads = profile["threads"].as_array().expect("threads");
    let rows = |table: &'static str| {
        let rows = threads
            .iter()
            .filter_map(move |thread| thread[table]["data"].as_array());
        rows.flatten()
    };
    let has_stack = |marker: &Value| marker.to_string().contains("\"stack\":");
    rows("samples").next().is_some() && rows("markers").any(has_stack)
}

impl Recording {
    fn record() -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("recording.json");
        // A thread of its own, the only one with samples.
        let recorder = thread::spawn(move || Self::record_on_this_thread(path));
        recorder.join().expect("recorded")
    }

    fn record_on_this_thread(path: PathBuf) -> Self {
        let _profiler = AutoProfilerInit::new();
        register_thread("recorder");
        let params = StartParams::default();
        let features = params.features | Features::NO_UNREGISTERED_SAMPLING;
        let session = ProfilerSession::start(params.features(features)).expect("started");
        let options = SnapshotOptions::default().symbolicate(Symbolicate::No);
        let (mut file, mut profile) = (Vec::new(), Value::Null);
        // The sampler needs a moment for a sample, and to write the marker's stack.
        while profile.is_null() || !is_complete(&profile) {
            recorded_function();
            file.clear();
            let snapshot = session.snapshot().expect("a session");
            let written = snapshot.write_with(Format::Gecko, &mut file, &options);
            written.expect("written");
            profile = serde_json::from_slice(&file).expect("JSON");
        }
        std::fs::write(&path, &file).expect("saved");
        let module = own_module(&profile);
        Self {
            addresses: addresses_in(&module, &profile),
            path,
            file,
            module,
        }
    }

    /// Returns what a query for this address of the executable contains.
    pub(crate) fn key(&self) -> (&str, &str) {
        let text = |key: &str| self.module[key].as_str().expect("a text");
        (text("debugName"), text("breakpadId"))
    }
}

fn own_module(profile: &Value) -> Value {
    let own = std::env::current_exe().expect("a path");
    let own = own.to_str().expect("UTF-8");
    let mut modules = profile["libs"].as_array().expect("libs").iter();
    let module = modules.find(|module| module["path"] == own);
    module.expect("the executable among the modules").clone()
}

/// Returns the addresses of all frames in the module.
fn addresses_in(module: &Value, profile: &Value) -> Vec<u64> {
    let number = |key: &str| module[key].as_u64().expect("a number");
    let (range, offset) = (number("start")..number("end"), number("offset"));
    let mut addresses = Vec::new();
    for thread in profile["threads"].as_array().expect("threads") {
        for text in thread["stringTable"].as_array().expect("strings") {
            let digits = text.as_str().and_then(|text| text.strip_prefix("0x"));
            let address = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
            let inside = address.filter(|address| range.contains(address));
            addresses.extend(inside.map(|address| address - range.start + offset));
        }
    }
    addresses
}
