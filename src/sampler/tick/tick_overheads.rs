//! Records the duration of each step of a tick if `MOZ_PROFILER_RECORD_OVERHEADS` is set.

use crate::buffer::{EntryHead, EntryKind, LaneHandle};
use crate::platform::monotonic_now;
use crate::state::Session;
use crate::types::TimeStamp;

/// Number of steps: update modules and threads, sample counters, sample threads, maintain the
/// buffer.
const STEPS: usize = 4;

/// The steps of the current tick. Without the variable no clock is read.
pub(crate) struct TickOverheads {
    tick: Option<TimeStamp>,
    step_began: TimeStamp,
    steps_ns: [u64; STEPS],
    done: usize,
}

impl TickOverheads {
    pub(crate) fn begin(session: &Session, tick: TimeStamp) -> Self {
        let tick = session.settings.records_overheads.then_some(tick);
        let step_began = tick.map_or(TimeStamp::default(), |_| monotonic_now());
        Self {
            tick,
            step_began,
            steps_ns: [0; STEPS],
            done: 0,
        }
    }

    /// Ends the current step and starts the next one.
    pub(crate) fn step_done(&mut self) {
        if self.tick.is_some() {
            let now = monotonic_now();
            if let Some(step_ns) = self.steps_ns.get_mut(self.done) {
                *step_ns = now.since_ns(self.step_began);
            }
            self.step_began = now;
            self.done += 1;
        }
    }

    pub(crate) fn write(self, session: &Session, lane: &LaneHandle<'_>) {
        let Some(tick) = self.tick else { return };
        let mut entry = EntryHead::new(EntryKind::Overhead);
        entry.number(tick.since_ns(session.process_start));
        self.steps_ns
            .into_iter()
            .for_each(|step_ns| _ = entry.number(step_ns));
        lane.put(session.generation, self.step_began, &entry);
    }
}
