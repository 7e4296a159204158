//! Before step 9: selects which samples of a thread are written, with which times, and for how many
//! ticks.

use std::sync::atomic::Ordering;

use crate::buffer::Repeats;
use crate::sampler::encode::{IdlePeriod, LastStack, SampleRun, SampleTime, Tick};
use crate::sampler::tick_context::TickContext;
use crate::state::{Session, SessionCounts};
use crate::types::{ThreadProfilingFeatures, TimeStamp};

/// Writes the samples of one thread. In its methods, a CPU time of `None` means that the thread's
/// clock cannot be read.
#[derive(Debug)]
pub(crate) struct SampleRecorder {
    /// Serial number of the thread's registration.
    thread: u64,
    records_cpu: bool,
    /// The CPU clock up to which samples account for the thread's CPU time.
    reported_cpu_ns: u64,
    /// While sampling is paused: CPU time between the thread's last sample and the pause.
    ran_before_pause_ns: u64,
    last_stack: LastStack,
    /// Time of the last sample.
    last_time: TimeStamp,
    /// Number of ticks that the session left out up to now and that need no further sample of the
    /// thread.
    seen_skipped: u64,
    /// Whether any sample was written.
    has_samples: bool,
}

impl SampleRecorder {
    pub(crate) fn new(
        thread: u64,
        features: ThreadProfilingFeatures,
        cpu_ns: u64,
        session: &Session,
    ) -> Self {
        Self {
            thread,
            records_cpu: session.records_cpu_of(features),
            reported_cpu_ns: cpu_ns,
            ran_before_pause_ns: 0,
            last_stack: LastStack::default(),
            last_time: TimeStamp(0),
            seen_skipped: session.counts.skipped_ticks.load(Ordering::Relaxed),
            has_samples: false,
        }
    }

    /// Returns the CPU time since the last sample, in ns. The thread's clock reads `cpu_ns` now.
    pub(crate) fn unreported_ns(&self, cpu_ns: u64) -> u64 {
        cpu_ns.saturating_sub(self.reported_cpu_ns)
    }

    /// Returns whether any sample was written.
    pub(crate) fn has_samples(&self) -> bool {
        self.has_samples
    }

    /// Writes the samples of an idle period up to the tick `last`, and before `woke`.
    pub(crate) fn write_idle(
        &mut self,
        idle: &mut IdlePeriod,
        last: Tick,
        woke: Option<TimeStamp>,
        context: &TickContext<'_>,
    ) {
        let Some(taken) = idle.take_run(last, context.interval_ns(), context.even_since) else {
            return;
        };
        let asleep = woke.map_or(Some(taken), |woke| taken.before(woke));
        let awake = taken.ticks - asleep.map_or(0, |asleep| asleep.ticks);
        let Some(run) = asleep.and_then(|run| context.unpaused_part(run)) else {
            return;
        };
        // The run has a sample for each tick that was left out within it.
        let skipped = context.skipped_ticks().saturating_sub(awake);
        self.seen_skipped = self.seen_skipped.max(skipped);
        let written = self.put_run(run, 1, Some(self.reported_cpu_ns), context);
        SessionCounts::add(&context.session.counts.same_samples, written);
    }

    /// Writes one sample with the stack in the scratch memory. It counts for the ticks, too, that were
    /// left out since the thread's last sample. Returns the number of samples written: 0 within a
    /// pause or without space in the buffer.
    pub(crate) fn write_sample(
        &mut self,
        time: TimeStamp,
        cpu_ns: Option<u64>,
        context: &TickContext<'_>,
    ) -> u64 {
        let skipped = context.skipped_ticks();
        let weight = 1 + skipped.saturating_sub(self.seen_skipped);
        self.seen_skipped = skipped;
        self.write_weighted(SampleRun::single(time), weight, cpu_ns, context)
    }

    /// Writes a sample that the running thread has taken of itself, on its own CPU time, and that counts
    /// for this many interruptions. If ticks were left out, it takes the place of as many of them.
    pub(crate) fn write_running(
        &mut self,
        time: TimeStamp,
        interruptions: u64,
        cpu_ns: Option<u64>,
        context: &TickContext<'_>,
    ) {
        let left_out = context.skipped_ticks().saturating_sub(self.seen_skipped);
        let replaced = interruptions.min(left_out);
        self.seen_skipped += replaced;
        let weight = replaced.max(1);
        let written = self.write_weighted(SampleRun::single(time), weight, cpu_ns, context);
        SessionCounts::add(&context.session.counts.captured_samples, written);
    }

    /// Writes a row only for CPU time, with the stack in the scratch memory. The row has no tick.
    pub(crate) fn write_cpu_time(
        &mut self,
        time: TimeStamp,
        cpu_ns: u64,
        context: &TickContext<'_>,
    ) {
        let written = self.write_weighted(SampleRun::single(time), 0, Some(cpu_ns), context);
        SessionCounts::add(&context.session.counts.samples_without_stack, written);
    }

    /// Writes a run of samples with the stack in the scratch memory, and returns the number of
    /// samples written. The run has a sample for each tick up to the one before this tick.
    pub(crate) fn write_run(
        &mut self,
        run: SampleRun,
        cpu_ns: Option<u64>,
        context: &TickContext<'_>,
    ) -> u64 {
        self.seen_skipped = self.seen_skipped.max(context.skipped_before());
        self.write_weighted(run, 1, cpu_ns, context)
    }

    fn write_weighted(
        &mut self,
        run: SampleRun,
        weight: u64,
        cpu_ns: Option<u64>,
        context: &TickContext<'_>,
    ) -> u64 {
        let (counts, stack) = (&context.session.counts, &context.scratch.stack);
        if !self.last_stack.try_set(stack) {
            SessionCounts::add(&counts.dropped_samples, run.ticks);
            return 0;
        }
        let Some(run) = context.unpaused_part(run) else {
            return 0;
        };
        let written = self.put_run(run, weight, cpu_ns, context);
        let counted = |counts_here| if counts_here { written } else { 0 };
        let head = stack.head;
        SessionCounts::add(&counts.truncated_samples, counted(head.is_truncated));
        SessionCounts::add(&counts.too_deep_samples, counted(head.is_too_deep));
        let of_other = counted(head.is_of_other_stack);
        SessionCounts::add(&counts.samples_on_other_stacks, of_other);
        written
    }

    /// Writes a run of samples with the last stack, and returns the number of samples written. A
    /// sample is never earlier than the thread's previous one, even if the sampler was delayed
    /// between the beginning of a tick and a capture.
    fn put_run(
        &mut self,
        run: SampleRun,
        weight: u64,
        cpu_ns: Option<u64>,
        context: &TickContext<'_>,
    ) -> u64 {
        let first = run.first.max(self.last_time);
        self.last_time = run.last.max(first);
        let delta = cpu_ns.map(|cpu_ns| cpu_ns.saturating_sub(self.reported_cpu_ns));
        let sample = SampleTime {
            thread: self.thread,
            time: first,
            cpu_delta_ns: delta.filter(|_| self.records_cpu),
            repeats: Repeats {
                count: run.ticks - 1,
                span_ns: self.last_time.since_ns(first),
                first_tick: run.uneven_tick(context.even_since),
            },
            weight,
        };
        let modules = context.unwinder.modules().number();
        let written = (context.writer).write(sample, modules, &mut self.last_stack);
        if written > 0 {
            self.reported_cpu_ns = self.reported_cpu_ns.max(cpu_ns.unwrap_or(0));
            self.has_samples = true;
        } else {
            // Its CPU time is the next sample's.
            SessionCounts::add(&context.session.counts.dropped_samples, run.ticks);
        }
        written
    }

    /// Forgets the ticks that were left out so far: a pause has begun within them.
    pub(crate) fn forget_skipped(&mut self, session: &Session) {
        self.seen_skipped = session.counts.skipped_ticks.load(Ordering::Relaxed);
    }

    /// Begins a pause: keeps the CPU time between the last sample and the pause for the first
    /// sample after it. The pause began `since_then_ns` before the clock was read.
    pub(crate) fn pause(&mut self, cpu_ns: Option<u64>, since_then_ns: u64) {
        self.ran_before_pause_ns = cpu_ns
            .unwrap_or(0)
            .saturating_sub(self.reported_cpu_ns)
            .saturating_sub(since_then_ns);
    }

    /// Returns the thread's CPU clock at the beginning of the pause, as far as it is known.
    pub(crate) fn cpu_ns_before_pause(&self) -> u64 {
        self.reported_cpu_ns
            .saturating_add(self.ran_before_pause_ns)
    }

    /// Ends a pause, and charges the CPU time used during it to no sample. `cpu_ns` is `None` if
    /// the thread has exited or has no readable clock.
    pub(crate) fn resume(&mut self, cpu_ns: Option<u64>, session: &Session) {
        self.forget_skipped(session);
        let before_ns = std::mem::take(&mut self.ran_before_pause_ns);
        if let Some(cpu_ns) = cpu_ns {
            self.reported_cpu_ns = self.reported_cpu_ns.max(cpu_ns.saturating_sub(before_ns));
        }
    }
}
