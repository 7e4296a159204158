//! Serializes payloads directly into the buffer, and deserializes them. The length of a payload is
//! computed only if the space in the buffer was too small.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;

use crate::buffer::EntryCursor;
use crate::markers::codec::compact_error::{CompactError, CompactResult};
use crate::markers::codec::compact_reader::CompactReader;
use crate::markers::codec::compact_writer::{ByteSink, CompactWriter};
use crate::markers::json_writer::JSONWriter;
use crate::markers::profiler_marker::ProfilerMarker;

/// The reason why a profile lacks a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PayloadFailure {
    /// `Serialize` failed, or panicked, while the marker was added.
    NotSerialized,
    /// `Deserialize` rejected the bytes that `Serialize` wrote, or the buffer is damaged.
    NotDeserialized,
    /// The payload's code panicked while the profile was written.
    Panicked,
    /// The library with the payload's code is no longer loaded.
    Unloaded,
    /// The process that has ended has not described the payload's type.
    NotDescribed,
}

impl PayloadFailure {
    /// Describes the failure, to be appended to the marker's name.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::NotSerialized => "payload could not be serialized",
            Self::NotDeserialized => "payload could not be deserialized",
            Self::Panicked => "payload panicked",
            Self::Unloaded => "library of the payload was unloaded",
            Self::NotDescribed => "payload was not described",
        }
    }
}

/// Counts the bytes of the serialized payload.
struct ByteCounter(usize);

impl ByteSink for ByteCounter {
    #[inline(always)]
    fn push(&mut self, _: u8) -> CompactResult<()> {
        self.0 += 1;
        Ok(())
    }

    #[inline(always)]
    fn extend(&mut self, bytes: &[u8]) -> CompactResult<()> {
        self.0 += bytes.len();
        Ok(())
    }
}

/// Writes the serialized payload into the buffer, and fails when the space is used up.
struct CursorWriter<'c, 'b>(&'c mut EntryCursor<'b>);

impl CursorWriter<'_, '_> {
    #[inline(always)]
    fn check_space(&self) -> CompactResult<()> {
        if self.0.is_overrun() {
            Err(CompactError)
        } else {
            Ok(())
        }
    }
}

impl ByteSink for CursorWriter<'_, '_> {
    #[inline(always)]
    fn push(&mut self, byte: u8) -> CompactResult<()> {
        self.0.byte(byte);
        self.check_space()
    }

    #[inline(always)]
    fn extend(&mut self, bytes: &[u8]) -> CompactResult<()> {
        self.0.raw(bytes);
        self.check_space()
    }
}

/// Runs code of the application and catches its panic.
#[inline(always)]
fn catch_application_panic<T>(body: impl FnOnce() -> CompactResult<T>) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result.ok(),
        Err(payload) => {
            // Dropping the panic's payload would run code of the application again.
            std::mem::forget(payload);
            None
        }
    }
}

/// Returns the length of the serialized payload, in bytes; 0 if it cannot be serialized.
pub(crate) fn payload_bytes<T: Serialize>(payload: &T) -> usize {
    catch_application_panic(|| {
        let mut counter = CompactWriter(ByteCounter(0));
        payload.serialize(&mut counter)?;
        Ok(counter.0.0)
    })
    .unwrap_or(0)
}

/// Serializes the payload. Returns false if the output is incomplete: `Serialize` failed or
/// panicked, or the space was too small.
#[inline(always)]
pub(crate) fn write_payload<T: Serialize>(payload: &T, out: &mut EntryCursor<'_>) -> bool {
    catch_application_panic(|| payload.serialize(&mut CompactWriter(CursorWriter(out)))).is_some()
}

/// Deserializes a payload and writes its fields.
pub(crate) fn stream<T: ProfilerMarker>(
    payload: &[u8],
    json: &mut JSONWriter<'_>,
) -> Result<(), PayloadFailure> {
    let mut reader = CompactReader { rest: payload };
    let payload = T::deserialize(&mut reader).map_err(|_| PayloadFailure::NotDeserialized)?;
    if !reader.rest.is_empty() {
        return Err(PayloadFailure::NotDeserialized);
    }
    payload.stream_json_marker_data(json);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::markers::built_in::{BorrowedFileIO, FileIO};
    use crate::types::ThreadId;

    #[derive(Default)]
    struct Bytes(Vec<u8>);

    impl ByteSink for Bytes {
        fn push(&mut self, byte: u8) -> CompactResult<()> {
            self.extend(&[byte])
        }

        fn extend(&mut self, bytes: &[u8]) -> CompactResult<()> {
            self.0.extend_from_slice(bytes);
            Ok(())
        }
    }

    fn bytes_of(payload: &impl Serialize) -> Vec<u8> {
        let mut writer = CompactWriter(Bytes::default());
        payload
            .serialize(&mut writer)
            .expect("a vector never fails");
        writer.0.0
    }

    #[test]
    fn borrowed_file_io_is_encoded_as_an_owned_one() {
        for (filename, number) in [(None, None), (Some("a file"), Some(-300)), (Some(""), None)] {
            let thread_id = number.map(ThreadId::from_number);
            let borrowed = BorrowedFileIO {
                operation: "read",
                source: "test",
                filename,
                thread_id,
            };
            let owned = FileIO {
                operation: "read".into(),
                source: "test".into(),
                filename: filename.map(str::to_owned),
                threadId: thread_id,
            };
            assert_eq!(bytes_of(&borrowed), bytes_of(&owned));
        }
    }
}
