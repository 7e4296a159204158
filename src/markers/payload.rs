//! Payloads as bytes: coded in place, and counted where that finds no room.

use std::panic::{AssertUnwindSafe, catch_unwind};

use postcard::ser_flavors::Flavor;

use crate::buffer::EntryCursor;
use crate::markers::json_writer::JSONWriter;
use crate::markers::marker_types::PayloadFailure;
use crate::markers::profiler_marker::ProfilerMarker;

/// Counts what would be written.
struct Counting(usize);

impl Flavor for Counting {
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

/// Writes where it is to be, if there is room.
struct InPlace<'c, 'b>(&'c mut EntryCursor<'b>);

impl InPlace<'_, '_> {
    #[inline(always)]
    fn check_room(&self) -> postcard::Result<()> {
        if self.0.is_overrun() {
            Err(postcard::Error::SerializeBufferFull)
        } else {
            Ok(())
        }
    }
}

impl Flavor for InPlace<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.byte(byte);
        self.check_room()
    }

    #[inline(always)]
    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        self.0.raw(data);
        self.check_room()
    }

    #[inline(always)]
    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// The host's code; a panic of its ends here.
#[inline(always)]
fn guarded<T>(body: impl FnOnce() -> postcard::Result<T>) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(answer) => answer.ok(),
        Err(payload) => {
            // To drop it is to run code of the host's again.
            std::mem::forget(payload);
            None
        }
    }
}

/// How many bytes the payload is; 0 when its type cannot say it.
pub(super) fn payload_bytes<T: ProfilerMarker>(payload: &T) -> usize {
    guarded(|| postcard::serialize_with_flavor(payload, Counting(0))).unwrap_or(0)
}

/// Writes the payload; false when only some of it is there, since its type refuses to go on, or panics, or finds no room.
#[inline(always)]
pub(super) fn write_payload<T: ProfilerMarker>(payload: &T, out: &mut EntryCursor<'_>) -> bool {
    // As `postcard::serialize_with_flavor` does, which is not inlined.
    guarded(|| {
        payload.serialize(&mut postcard::Serializer {
            output: InPlace(out),
        })
    })
    .is_some()
}

/// Reads a payload back, and has it write its fields.
pub(super) fn stream<T: ProfilerMarker>(
    payload: &[u8],
    json: &mut JSONWriter<'_>,
) -> Result<(), PayloadFailure> {
    let (payload, rest) =
        postcard::take_from_bytes::<T>(payload).map_err(|_| PayloadFailure::Unreadable)?;
    if !rest.is_empty() {
        return Err(PayloadFailure::Unreadable);
    }
    payload.stream_json_marker_data(json);
    Ok(())
}
