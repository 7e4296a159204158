//! Fields of Firefox's own markers that differ between its format and this one.

use serde_json::{Map, Value};

/// Converts the timings of a garbage collection. Returns `None` for any other field.
pub(super) fn converted_field(type_name: &str, key: &str, json: &str) -> Option<String> {
    if key != "timings" {
        return None;
    }
    let phases = match type_name {
        "GCSlice" => "times",
        "GCMajor" => "totals",
        _ => return None,
    };
    let Value::Object(mut timings) = serde_json::from_str(json).ok()? else {
        return None;
    };
    if type_name == "GCMajor" {
        if timings
            .get("status")
            .is_some_and(|status| status == "aborted")
        {
            timings.retain(|key, _| key == "status");
            return Some(Value::Object(timings).to_string());
        }
        // Percentages become shares.
        for key in ["mmu_20ms", "mmu_50ms"] {
            if let Some(share) = timings.get_mut(key) {
                *share = (share.as_f64()? / 100.0).into();
            }
        }
    }
    let in_ms = match timings.remove(phases) {
        Some(Value::Object(phases)) => phases,
        _ => Map::new(),
    };
    let in_us = in_ms.into_iter().map(|(phase, ms)| {
        let us = ms.as_f64().unwrap_or(0.0) * 1000.0;
        (phase, Value::from(us))
    });
    timings.insert("phase_times".to_owned(), Value::Object(in_us.collect()));
    Some(Value::Object(timings).to_string())
}
