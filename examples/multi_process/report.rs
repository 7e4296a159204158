//! Lists the processes of a profile.

use std::error::Error;
use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

/// Returns a line for each process in the file, and the parent's notes about the processes that it
/// asked for their profiles.
pub(crate) fn of_file(file: &Path) -> Result<String, Box<dyn Error>> {
    let profile: Value = serde_json::from_slice(&std::fs::read(file)?)?;
    let mut report = describe(&profile);
    for process in profile["processes"].as_array().into_iter().flatten() {
        report += &describe(process);
    }
    for log in profile["profileGatheringLog"]
        .as_object()
        .into_iter()
        .flatten()
    {
        for event in log.1["events"].as_array().into_iter().flatten() {
            writeln!(report, "  {}", event["event"].as_str().unwrap_or_default())?;
        }
    }
    Ok(report)
}

fn describe(process: &Value) -> String {
    let threads = process["threads"].as_array();
    let samples = |thread: &Value| thread["samples"]["data"].as_array().map_or(0, Vec::len);
    let count: usize = threads.into_iter().flatten().map(samples).sum();
    let first = &process["threads"][0];
    let name = first["processName"].as_str().unwrap_or("?");
    format!("{:>7} {name}: {count} samples\n", first["pid"].to_string())
}
