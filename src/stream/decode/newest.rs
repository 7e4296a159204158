//! Decodes as much of a profile as there is memory for.

use std::io;

use crate::stream::decode::source::ProfileSource;
use crate::stream::decode::streaming_context::ProcessStreamingContext;
use crate::stream::memory::check_memory;
use crate::util::ProgressLogger;

/// Decodes the source. Without memory for it, leaves out the older half of the source's chunks until
/// the rest fits.
///
/// # Errors
/// The memory does not suffice for the newest chunk.
pub(crate) fn decode_newest(
    source: &mut ProfileSource,
    progress: &ProgressLogger,
) -> io::Result<ProcessStreamingContext> {
    loop {
        let decoded = ProcessStreamingContext::decode(source, progress)
            .and_then(|process| check_memory(process.unnamed_bytes()).map(|()| process));
        match decoded {
            Err(_) if source.buffer.leave_out_older_half() => {}
            decoded => return decoded,
        }
    }
}
