//! Fields of markers that hold times of their process.

/// Fields of Firefox's `Network` markers.
const NETWORK_TIMES: &[&str] = &[
    "domainLookupStart",
    "domainLookupEnd",
    "connectStart",
    "tcpConnectEnd",
    "secureConnectionStart",
    "connectEnd",
    "requestStart",
    "responseStart",
    "responseEnd",
];

/// Returns whether a marker's field holds a time in ms since its process's start, which the Firefox
/// Profiler moves to the time of the profile. In the model, such a field has the profile's time.
pub(crate) fn holds_process_time(type_name: &str, key: &str) -> bool {
    matches!(key, "startTime" | "endTime")
        || (type_name == "Network" && NETWORK_TIMES.contains(&key))
}
