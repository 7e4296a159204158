//! A record of `log` as a marker's payload.

use crate::interop::host_text::{append_str, append_text};
use crate::interop::pooled_bytes::PooledBytes;
use crate::interop::viewer_log;
use crate::markers::{JSONWriter, MarkerSchema, ProfilerMarker};

/// A longer message is cut. Memory for it is made anew where it has more than 4 KiB.
pub(super) const MOST_MESSAGE_BYTES: usize = 16 << 10;
const MOST_FILE_BYTES: usize = 512;

/// What was logged.
#[derive(Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct LogRecord {
    /// Its place among the viewer's levels.
    level: u8,
    line: Option<u32>,
    message_bytes: u32,
    /// The message, and behind it the file's name, if it is known.
    texts: PooledBytes,
}

impl LogRecord {
    /// Runs code of the host's.
    pub(super) fn new(record: &log::Record<'_>) -> Self {
        let mut texts = PooledBytes::new();
        let bytes = texts.bytes_mut();
        append_text(bytes, *record.args(), MOST_MESSAGE_BYTES);
        let message_bytes = bytes.len() as u32;
        append_str(bytes, record.file().unwrap_or_default(), MOST_FILE_BYTES);
        Self {
            level: record.level() as u8 - 1,
            line: record.line(),
            message_bytes,
            texts,
        }
    }
}

impl ProfilerMarker for LogRecord {
    fn marker_type_name() -> &'static str {
        viewer_log::name()
    }

    fn marker_type_display() -> MarkerSchema {
        viewer_log::schema()
    }

    fn stream_json_marker_data(&self, json: &mut JSONWriter<'_>) {
        let bytes = self.texts.bytes();
        let (message, file) = bytes.split_at(bytes.len().min(self.message_bytes as usize));
        viewer_log::write_fields(json, self.level, &String::from_utf8_lossy(message));
        let file = String::from_utf8_lossy(file);
        viewer_log::write_location(
            json,
            Some(&*file).filter(|file| !file.is_empty()),
            self.line,
        );
    }
}
