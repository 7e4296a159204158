//! Event loops that the profiler watches by probes.
//!
//! # Purpose
//! A loop that cannot report its events is asked: the profiler posts a probe to it at an interval
//! and measures how long the probe waits ([`probe`]). [`watch`] holds the watched loops.
//!
//! # Threads and locks
//! A probe runs on the loop's thread. Posting runs on a thread of its own, under no lock, because
//! the application's function may block. The list of watches has the last lock of the order.
//!
//! # Imports
//! `platform`, `threads`, `types`, `util`
//!
//! # Invariants
//! - At most one probe of a loop is on its way.
//! - A function that panics ends its watch.
//!
//! # Read next
//! `probe.rs`, `watch.rs`, then `session/event_watcher.rs`.

#[forbid(unsafe_code)]
mod probe;
#[forbid(unsafe_code)]
mod watch;

pub(crate) use probe::{ProbeToken, ProbedLoop};
pub(crate) use watch::{EventWatches, PostProbe, WatchWork};
