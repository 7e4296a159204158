//! The process's buffer. It stands for ever, so that a marker need not ask whether it does.

use crate::buffer::ChunkedBuffer;

static CORE_BUFFER: ChunkedBuffer = ChunkedBuffer::out_of_session();

/// In session only while the profiler is active.
#[doc(alias = "profiler_get_core_buffer")]
pub(crate) fn core_buffer() -> &'static ChunkedBuffer {
    &CORE_BUFFER
}
