//! Serializes payloads directly into the buffer, and deserializes them. The length of a payload is
//! computed only if the space in the buffer was too small.

use std::panic::{AssertUnwindSafe, catch_unwind};

use postcard::ser_flavors::Flavor;

use crate::buffer::EntryCursor;
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
}

impl PayloadFailure {
    /// Describes the failure, to be appended to the marker's name.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::NotSerialized => "payload could not be serialized",
            Self::NotDeserialized => "payload could not be deserialized",
            Self::Panicked => "payload panicked",
            Self::Unloaded => "library of the payload was unloaded",
        }
    }
}

/// Counts the bytes of the serialized payload.
struct ByteCounter(usize);

impl Flavor for ByteCounter {
    type Output = usize;

    #[inline(always)]
    fn try_push(&mut self, _: u8) -> postcard::Result<()> {
        self.0 += 1;
        Ok(())
    }

    #[inline(always)]
    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        self.0 += data.len();
        Ok(())
    }

    #[inline(always)]
    fn finalize(self) -> postcard::Result<usize> {
        Ok(self.0)
    }
}

/// Writes the serialized payload into the buffer, and fails when the space is used up.
struct CursorWriter<'c, 'b>(&'c mut EntryCursor<'b>);

impl CursorWriter<'_, '_> {
    #[inline(always)]
    fn check_space(&self) -> postcard::Result<()> {
        if self.0.is_overrun() {
            Err(postcard::Error::SerializeBufferFull)
        } else {
            Ok(())
        }
    }
}

impl Flavor for CursorWriter<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.byte(byte);
        self.check_space()
    }

    #[inline(always)]
    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        self.0.raw(data);
        self.check_space()
    }

    #[inline(always)]
    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Runs code of the application and catches its panic.
#[inline(always)]
fn catch_application_panic<T>(body: impl FnOnce() -> postcard::Result<T>) -> Option<T> {
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
pub(crate) fn payload_bytes<T: ProfilerMarker>(payload: &T) -> usize {
    catch_application_panic(|| postcard::serialize_with_flavor(payload, ByteCounter(0)))
        .unwrap_or(0)
}

/// Serializes the payload. Returns false if the output is incomplete: `Serialize` failed or
/// panicked, or the space was too small.
#[inline(always)]
pub(crate) fn write_payload<T: ProfilerMarker>(payload: &T, out: &mut EntryCursor<'_>) -> bool {
    // Equivalent to `postcard::serialize_with_flavor`, which is not inlined.
    catch_application_panic(|| {
        payload.serialize(&mut postcard::Serializer {
            output: CursorWriter(out),
        })
    })
    .is_some()
}

/// Deserializes a payload and writes its fields.
pub(crate) fn stream<T: ProfilerMarker>(
    payload: &[u8],
    json: &mut JSONWriter<'_>,
) -> Result<(), PayloadFailure> {
    let (payload, rest) =
        postcard::take_from_bytes::<T>(payload).map_err(|_| PayloadFailure::NotDeserialized)?;
    if !rest.is_empty() {
        return Err(PayloadFailure::NotDeserialized);
    }
    payload.stream_json_marker_data(json);
    Ok(())
}
