//! Dumps, with a marker on the thread that caused one.

use std::fmt;
use std::time::Duration;

use crate::session::{Cause, WrittenDump, permit_dump};
use crate::types::DumpError;

/// Starts a dump: see `profiler_dump`. `add_marker` adds the marker with the reason, before the
/// dump, so that the dump has it.
///
/// # Errors
/// See `profiler_dump`.
pub(crate) fn dump_with_marker(
    last: Option<Duration>,
    reason: fmt::Arguments<'_>,
    cause: impl FnOnce() -> Cause,
    add_marker: impl FnOnce(&str),
) -> Result<WrittenDump, DumpError> {
    let permit = permit_dump()?;
    let reason = reason.to_string();
    add_marker(&permit.whole_reason(&reason));
    permit.write(last, &reason, cause())
}
