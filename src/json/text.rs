//! JSON as a text in memory.

use crate::json::writer::JsonWriter;
use crate::util::FailureLatch;

/// Returns the text of what `write` writes.
pub(crate) fn json_text(write: impl FnOnce(&mut JsonWriter<'_>)) -> String {
    let mut text = Vec::new();
    let mut json = JsonWriter::for_job(&mut text, FailureLatch::fallible());
    write(&mut json);
    // A vector never fails.
    let _ = json.finish();
    // The writer writes only UTF-8.
    String::from_utf8(text).unwrap_or_default()
}
