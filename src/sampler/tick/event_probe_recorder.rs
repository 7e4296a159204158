//! Writes the probes of event loops to the buffer.
//!
//! Each probe is written as a separate entry, which spans the time from posting to answer. It is
//! not part of a sample, so the sampler does no work for a sleeping thread that has not answered
//! yet.

use std::sync::Arc;

use crate::buffer::{EntryHead, EntryKind, LaneHandle};
use crate::event_loop::{EventWatches, ProbedLoop};
use crate::platform::monotonic_now;
use crate::state::Session;

/// The probed event loops that the sampler knows.
#[derive(Debug, Default)]
pub(crate) struct EventProbeRecorder {
    version: u64,
    loops: Vec<Arc<ProbedLoop>>,
}

impl EventProbeRecorder {
    /// Writes the answered probes. With `with_open`, also writes the pending ones, which are
    /// written again when they are answered.
    pub(crate) fn record(&mut self, session: &Session, lane: &LaneHandle<'_>, with_open: bool) {
        let version = EventWatches::version();
        if version != self.version {
            self.version = version;
            let mut known = std::mem::replace(&mut self.loops, EventWatches::probed_loops());
            // Keep loops that are no longer watched but still have an open probe.
            known.retain(|old| {
                old.unrecorded().is_some() && !self.loops.iter().any(|new| Arc::ptr_eq(old, new))
            });
            self.loops.append(&mut known);
        }
        for probed in &self.loops {
            let Some(probe) = probed.unrecorded() else {
                continue;
            };
            let now = monotonic_now();
            // A probe of a thread that has exited ends with the thread.
            let end = probe.answered.or_else(|| {
                probed
                    .thread
                    .unlocked_const_reader_and_atomic_rw()
                    .unregistered_at()
            });
            if (end.is_some() || with_open) && probed.is_profiled() {
                probed
                    .thread
                    .unlocked_const_reader_and_atomic_rw()
                    .note_entry(session.generation);
                let mut entry = EntryHead::new(EntryKind::EventProbe);
                entry
                    .number(probed.thread.serial())
                    .number(probe.posted.since_ns(session.process_start))
                    .number(end.map_or(0, |end| 1 + end.since_ns(probe.posted)));
                lane.put(session.generation, now, &entry);
            }
            if end.is_some() {
                probed.set_recorded(probe);
            }
        }
    }
}
