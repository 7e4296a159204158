//! Before step 9: selects which samples of a thread are written, with which times, and for how many
//! ticks.

use crate::sampler::encode::SampleTime;
use crate::sampler::encode::{IdlePeriod, SampleRun, Tick};
use crate::sampler::thread::thread_sampler::ThreadSampler;
use crate::sampler::tick::TickContext;
use crate::state::SessionCounts;
use crate::types::TimeStamp;

impl ThreadSampler {
    /// Writes the pending idle samples up to the previous tick.
    pub(crate) fn write_idle_before_tick(&mut self, context: &TickContext<'_>) {
        self.write_idle_until(context.tick_before, context);
    }

    /// Writes the pending idle samples up to this tick, so that a profile includes them.
    pub(crate) fn write_idle_samples(&mut self, context: &TickContext<'_>) {
        self.write_idle_until(context.tick, context);
    }

    /// Writes the pending idle samples up to this tick if they are overdue.
    pub(crate) fn write_overdue_idle(&mut self, context: &TickContext<'_>) {
        if self
            .idle
            .as_ref()
            .is_some_and(|idle| idle.is_overdue(context.tick.time))
        {
            self.write_idle_samples(context);
        }
    }

    pub(crate) fn write_idle_until(&mut self, last: Tick, context: &TickContext<'_>) {
        let interval_ns = context.interval_ns();
        let Some(run) = self
            .idle
            .as_mut()
            .and_then(|idle| idle.take_run(last, interval_ns))
        else {
            return;
        };
        let Some(run) = context.unpaused_part(run) else {
            return;
        };
        let written = self.put_run(run, self.reported_cpu_ns, context);
        SessionCounts::add(&context.session.counts.same_samples, written);
    }

    pub(crate) fn write_captured(
        &mut self,
        time: TimeStamp,
        cpu_ns: u64,
        context: &TickContext<'_>,
    ) {
        let written = self.write_sample(time, cpu_ns, context);
        SessionCounts::add(&context.session.counts.captured_samples, written);
    }

    /// Writes one sample with the stack in the scratch memory. Returns the number of samples
    /// written: 0 within a pause or without space in the buffer.
    pub(crate) fn write_sample(
        &mut self,
        time: TimeStamp,
        cpu_ns: u64,
        context: &TickContext<'_>,
    ) -> u64 {
        self.write_run(SampleRun::single(time), cpu_ns, context)
    }

    /// Writes a run of samples with the stack in the scratch memory, and returns the number of
    /// samples written.
    pub(crate) fn write_run(
        &mut self,
        run: SampleRun,
        cpu_ns: u64,
        context: &TickContext<'_>,
    ) -> u64 {
        let (counts, stack) = (&context.session.counts, &context.scratch.stack);
        self.last_stack.set(stack);
        let Some(run) = context.unpaused_part(run) else {
            return 0;
        };
        let written = self.put_run(run, cpu_ns, context);
        let counted = |counts_here| if counts_here { written } else { 0 };
        SessionCounts::add(&counts.truncated_samples, counted(stack.is_truncated()));
        SessionCounts::add(
            &counts.samples_on_other_stacks,
            counted(stack.is_of_other_stack()),
        );
        written
    }

    /// Writes a run of samples with the last stack, and returns the number of samples written. A
    /// sample is never earlier than the thread's previous one, even if the sampler was delayed
    /// between the beginning of a tick and a capture.
    fn put_run(&mut self, run: SampleRun, cpu_ns: u64, context: &TickContext<'_>) -> u64 {
        let first = run.first.max(self.last_time);
        self.last_time = run.last.max(first);
        let delta = cpu_ns.saturating_sub(self.reported_cpu_ns);
        self.reported_cpu_ns = self.reported_cpu_ns.max(cpu_ns);
        let sample = SampleTime {
            thread: self.registration.serial(),
            time: first,
            cpu_delta_ns: context
                .session
                .records_cpu_of(self.features)
                .then_some(delta),
            more: run.ticks - 1,
            span_ns: self.last_time.since_ns(first),
        };
        context.writer.write(
            sample,
            context.unwinder.modules().number(),
            &mut self.last_stack,
        )
    }

    pub(crate) fn sample_without_stack(&mut self, cpu_ns: u64, context: &mut TickContext<'_>) {
        let event_loop = self
            .slot
            .as_deref()
            .map(|slot| slot.event_delay().state_in_handler());
        context
            .scratch
            .stack
            .set_empty(event_loop.unwrap_or_default());
        self.write_sample(context.tick.time, cpu_ns, context);
        self.idle = Some(IdlePeriod::new(
            cpu_ns,
            None,
            context.tick,
            context.interval_ns(),
        ));
    }
}
