//! What the event loops' probes tell, on its way to the buffer.
//!
//! A probe is an entry of its own, from when it was posted until it was answered, and no part of samples: so nothing is done
//! for a thread that sleeps while a probe waits for it.

use std::sync::Arc;

use crate::buffer::{EntryHead, EntryKind, LaneHandle};
use crate::platform::monotonic_now;
use crate::state::Session;
use crate::threads::{EventWatches, ProbedLoop};

/// The loops that are probed, as the sampler knows them.
#[derive(Debug, Default)]
pub(super) struct EventProbes {
    version: u64,
    loops: Vec<Arc<ProbedLoop>>,
}

impl EventProbes {
    /// Writes the probes that were answered, and that others are out if `with_open`: they are written again later.
    pub(super) fn record(&mut self, session: &Session, lane: &LaneHandle<'_>, with_open: bool) {
        let version = EventWatches::version();
        if version != self.version {
            self.version = version;
            let mut known = std::mem::replace(&mut self.loops, EventWatches::probed_loops());
            // Nobody watches them any more, and their last probe is open.
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
            // A thread that is gone does not answer.
            let end = probe.answered.or_else(|| {
                probed
                    .thread
                    .unlocked_const_reader_and_atomic_rw()
                    .unregistered_at()
            });
            if (end.is_some() || with_open) && probed.is_profiled() {
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
