//! Measures the duration of each step of a tick. `profiler_get_buffer_info` returns the statistics.
//! With `MOZ_PROFILER_RECORD_OVERHEADS`, each tick's durations are also written to the buffer.

use crate::buffer::{EntryHead, EntryKind, LaneHandle};
use crate::platform::monotonic_now;
use crate::sampler::encode::Tick;
use crate::state::Session;
use crate::types::TimeStamp;

/// Number of steps: update modules and threads, sample counters, sample threads, maintain the
/// buffer.
const STEPS: usize = 4;

/// The steps of the current tick. Cost: five readings of the clock per tick.
pub(crate) struct TickOverheads {
    tick: Tick,
    step_began: TimeStamp,
    steps_ns: [u64; STEPS],
    done: usize,
}

impl TickOverheads {
    pub(crate) fn begin(tick: Tick) -> Self {
        Self {
            tick,
            step_began: monotonic_now(),
            steps_ns: [0; STEPS],
            done: 0,
        }
    }

    /// Ends the current step and starts the next one.
    pub(crate) fn step_done(&mut self) {
        let now = monotonic_now();
        if let Some(step_ns) = self.steps_ns.get_mut(self.done) {
            *step_ns = now.since_ns(self.step_began);
        }
        self.step_began = now;
        self.done += 1;
    }

    /// Adds the tick to the session's statistics, and writes its steps if that is requested.
    pub(crate) fn record(self, tick_before: Tick, session: &Session, lane: &LaneHandle<'_>) {
        let [lockings_ns, counters_ns, threads_ns, cleanings_ns] = self.steps_ns;
        let overheads = &session.overheads;
        // No tick precedes the first one.
        if tick_before.number > 0 {
            let interval_ns = self.tick.time.since_ns(tick_before.time);
            overheads.intervals.add(interval_ns);
        }
        overheads.overheads.add(self.steps_ns.iter().sum());
        overheads.lockings.add(lockings_ns);
        overheads.counters.add(counters_ns);
        overheads.threads.add(threads_ns);
        overheads.cleanings.add(cleanings_ns);
        if !session.settings.records_overheads {
            return;
        }
        let mut entry = EntryHead::new(EntryKind::Overhead);
        entry.number(self.tick.time.since_ns(session.process_start));
        self.steps_ns
            .into_iter()
            .for_each(|step_ns| _ = entry.number(step_ns));
        lane.put(session.generation, self.step_began, &entry);
    }
}
