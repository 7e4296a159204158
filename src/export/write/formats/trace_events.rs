//! What all trace events share.

use crate::json::JsonWriter;

/// The `cat` of all markers. DevTools follows a flow only between events of the same `cat`, so the
/// marker's own category is an argument.
pub(super) const MARKER_CATEGORY: &str = "marker";

/// Writes the process and the thread of an event.
pub(super) fn write_track(json: &mut JsonWriter<'_>, (pid, tid): (u64, u64)) {
    json.key("pid").unsigned(pid);
    json.key("tid").unsigned(tid);
}
