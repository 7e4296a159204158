//! The payload of a `log` record.

use crate::integrations::application_text::{append_str, append_text};
use crate::integrations::pooled_bytes::PooledBytes;
use crate::integrations::viewer_log;
use crate::markers::{JSONWriter, MarkerSchema, ProfilerMarker, serde_as_tuple};

/// Maximum length of a message, in bytes; a longer one is truncated. Messages above 4 KiB allocate
/// memory each time.
pub(crate) const MAX_MESSAGE_BYTES: usize = 16 << 10;
const MAX_FILE_BYTES: usize = 512;

/// A log record.
#[derive(Debug)]
pub(crate) struct LogRecord {
    /// Index of the level in [`viewer_log::LEVELS`].
    level: u8,
    line: Option<u32>,
    message_bytes: u32,
    /// The message, followed by the name of the source file, if it is known.
    texts: PooledBytes,
}

serde_as_tuple!(LogRecord {
    level: u8,
    line: Option<u32>,
    message_bytes: u32,
    texts: PooledBytes
});

impl LogRecord {
    /// Formats the record, which runs code of the application.
    pub(crate) fn new(record: &log::Record<'_>) -> Self {
        let mut texts = PooledBytes::new();
        let bytes = texts.bytes_mut();
        append_text(bytes, *record.args(), MAX_MESSAGE_BYTES);
        let message_bytes = bytes.len() as u32;
        append_str(bytes, record.file().unwrap_or_default(), MAX_FILE_BYTES);
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
