//! The peer pprof-rs: its samples by thread.

use std::time::Duration;

use pprof::{ProfilerGuard, UnresolvedReport};

use crate::study::Fallible;

/// Starts pprof-rs.
pub(crate) fn start(interval: Duration) -> Fallible<ProfilerGuard<'static>> {
    Ok(ProfilerGuard::new(
        (1.0 / interval.as_secs_f64()).round() as i32
    )?)
}

/// Returns the samples so far, without names.
pub(crate) fn report(guard: &ProfilerGuard<'_>) -> Fallible<UnresolvedReport> {
    Ok(guard.report().build_unresolved()?)
}

/// Returns the number of samples so far of the threads whose names begin with this.
pub(crate) fn samples_of(guard: &ProfilerGuard<'_>, thread: &str) -> Fallible<f64> {
    let report = report(guard)?;
    let of_thread = report.data.iter().filter(|(stack, _)| {
        stack.thread_name[..stack.thread_name_length].starts_with(thread.as_bytes())
    });
    Ok(of_thread.map(|(_, count)| *count as f64).sum())
}
