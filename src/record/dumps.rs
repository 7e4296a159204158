//! Dumps, with a marker on the thread that caused one.

use std::time::Duration;

use crate::record::add_text_marker_now;
use crate::session::{WrittenDump, permit_dump};
use crate::types::{DumpError, ProfilingCategoryPair};

/// Starts a dump: see `profiler_dump`.
///
/// # Errors
/// See `profiler_dump`.
pub(crate) fn dump(last: Option<Duration>, reason: &str) -> Result<WrittenDump, DumpError> {
    let permit = permit_dump()?;
    let refused = match permit.refused {
        0 => String::new(),
        1 => "; 1 other cause came too soon after the last dump".to_owned(),
        count => format!("; {count} other causes came too soon after the last dump"),
    };
    // Before the dump, so that it has the marker.
    let category = ProfilingCategoryPair::Profiler(None).indices();
    add_text_marker_now("Dump", category, &format!("{reason}{refused}"));
    permit.write(last, reason)
}

/// Dumps because an interval with this name was longer than the settings allow.
#[cold]
#[inline(never)]
pub(super) fn dump_for_interval(name: &str, ns: u64) {
    let took = Duration::from_nanos(ns);
    // If it is too soon, the next dump has the number of such causes.
    let _ = dump(None, &format!("{name} took {:.3} s", took.as_secs_f64()));
}
