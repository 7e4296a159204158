//! Event loops that the profiler watches by probes.
//!
//! # Purpose
//! If a loop cannot report its events, the profiler posts a probe to it at an interval, and
//! measures how long the probe waits ([`probe`]). [`watch`] holds the watched loops.
//!
//! # Threads and locks
//! A probe runs on the loop's thread. The watcher thread posts the probes, and holds no lock while
//! it does, because the application's callback may block. The lock of the list of watches is the
//! last in the lock order.
//!
//! # Imports
//! `platform`, `threads`, `types`, `util`
//!
//! # Invariants
//! - At most one probe of a loop is pending.
//! - A callback that panics ends its watch.
//!
//! # Read next
//! `probe.rs`, `watch.rs`, then `session/life_cycle/event_loops.rs`.

mod probe;
mod watch;

pub(crate) use probe::{ProbeToken, ProbedLoop};
pub(crate) use watch::{EventWatches, PostProbe, WatchWork};
