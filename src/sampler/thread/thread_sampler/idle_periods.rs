//! The samples of a thread that does not run are repeated.

use super::ThreadSampler;
use crate::sampler::encode::{IdlePeriod, Tick};
use crate::sampler::thread::sample_recorder::SampleRecorder;
use crate::sampler::thread::switch_recorder::SwitchRecorder;
use crate::sampler::thread::thread_state::ThreadState;
use crate::sampler::tick::TickContext;
use crate::types::TimeStamp;

impl ThreadSampler {
    /// Returns whether the thread has not run since its stack was captured.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, ThreadState::Idle(_))
    }

    /// Returns whether the thread has been idle for long or for all of the session, and all its context
    /// switches have been read, if the session records them.
    pub(crate) fn is_long_idle(&self, tick: Tick) -> bool {
        let ThreadState::Idle(idle) = &self.state else {
            return false;
        };
        let may_rest = |switches: &SwitchRecorder| switches.may_rest(idle.cpu_ns());
        let has_not_run = idle.cpu_ns() == self.began_cpu_ns && !self.has_no_clock;
        (idle.is_long(tick) || has_not_run) && self.switches.as_ref().is_none_or(may_rest)
    }

    /// Starts an idle period on this tick, which already has its sample. Without a readable clock,
    /// no later tick could tell that the period ended, so the thread stays running.
    pub(super) fn begin_idle_period(
        &mut self,
        cpu_ns: Option<u64>,
        announced: Option<u32>,
        context: &TickContext<'_>,
    ) {
        self.may_block_signal = true;
        if let Some(cpu_ns) = cpu_ns {
            let idle = IdlePeriod::new(cpu_ns, announced, context.tick);
            self.state = ThreadState::Idle(idle);
        }
    }

    /// Ends the idle period of a thread that has run: its last sample is on the previous tick of the
    /// schedule.
    pub(super) fn end_idle_period(&mut self, context: &TickContext<'_>) {
        let (samples, switches) = (&mut self.samples, self.switches.as_mut());
        self.state.end_idle(None, samples, switches, context);
    }

    /// Writes the pending idle samples up to the previous tick.
    pub(crate) fn write_idle_before_tick(&mut self, context: &TickContext<'_>) {
        self.write_idle_until(context.last_before, context);
    }

    /// Writes the pending idle samples up to this tick, so that a profile includes them.
    pub(crate) fn write_idle_samples(&mut self, context: &TickContext<'_>) {
        self.write_idle_until(context.tick, context);
    }

    /// Writes the pending idle samples up to this tick if they are overdue.
    pub(crate) fn write_overdue_idle(&mut self, context: &TickContext<'_>) {
        let has_crash_file = context.session.crash_facts.is_some();
        let now = context.tick.time;
        if matches!(&self.state, ThreadState::Idle(idle) if idle.is_overdue(now, has_crash_file)) {
            self.write_idle_samples(context);
        }
    }

    pub(super) fn write_idle_until(&mut self, last: Tick, context: &TickContext<'_>) {
        if let ThreadState::Idle(idle) = &mut self.state {
            self.samples.write_idle(idle, last, None, context);
        }
    }
}

impl ThreadState {
    /// Ends the idle period of a thread that has run, if it is in one. `woke` is a time at which it ran
    /// again, if one is known.
    pub(super) fn end_idle(
        &mut self,
        woke: Option<TimeStamp>,
        samples: &mut SampleRecorder,
        switches: Option<&mut SwitchRecorder>,
        context: &TickContext<'_>,
    ) {
        if let Self::Idle(idle) = self {
            samples.write_idle(idle, context.last_before, woke, context);
            if let Some(switches) = switches {
                switches.rest(idle.cpu_ns(), context.tick_before.time);
            }
            *self = Self::Running;
        }
    }
}
