//! What the running session of a copy has captured. The library and its tests share this file.

use gekkota::profile::{SnapshotOptions, Symbolicate};

/// Returns the number of samples that the signal handler has captured, or 0 without a session.
pub fn captured_samples() -> u64 {
    let options = SnapshotOptions::default().symbolicate(Symbolicate::No);
    let mut text = Vec::new();
    if gekkota::profiler_stream_json(&mut text, &options).is_err() {
        return 0;
    }
    let json: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let log = &json["profilingLog"][std::process::id().to_string()];
    log["sampler"]["captured_samples"]
        .as_u64()
        .expect("a count")
}
