//! Collects the captures that a thread's own timer has made since the last tick of the sampler.
//!
//! Only in a session with [`SamplingEngine::BatchedTimers`](crate::SamplingEngine::BatchedTimers).

use std::sync::Arc;

use crate::capture::{CapturedView, SlotBatch, SlotHandle};
use crate::sampler::thread::sample_recorder::SampleRecorder;
use crate::sampler::tick::{Scratch, TickContext, captured_by, unwind_copy};
use crate::state::SessionCounts;
use crate::types::TimeStamp;

/// Number of slots beyond the intervals between two collections: the sampler may be late.
const SPARE_SLOTS: u64 = 3;
/// Maximum CPU time without a capture, in intervals, and its minimum in ns: three ticks of a slow kernel.
const MAX_SILENT_INTERVALS: u64 = 3;
const MIN_SILENT_NS: u64 = 30_000_000;

/// The captures that a thread keeps.
#[derive(Debug, Default)]
pub(crate) struct BatchedSamples {
    batch: Option<SlotBatch>,
    /// The thread's CPU clock when the slots got their first requests, or when the last capture was
    /// collected.
    answered_cpu_ns: Option<u64>,
    /// Number of captures since the last requests.
    captures: u64,
}

impl BatchedSamples {
    pub(crate) fn exists(&self) -> bool {
        self.batch.is_some()
    }

    pub(crate) fn has_captures(&self) -> bool {
        self.waiting() > 0
    }

    /// Gives the slots back.
    pub(crate) fn release(&mut self) {
        *self = Self::default();
    }

    /// Makes the slots on the first call. Returns false if there are none to be had.
    pub(crate) fn ensure(&mut self, own: &Arc<SlotHandle>, context: &TickContext<'_>) -> bool {
        if self.batch.is_none() {
            let count = context.ticks_of_collection + SPARE_SLOTS;
            self.batch = SlotBatch::acquire(own, count as usize);
        }
        self.batch.is_some()
    }

    /// Makes requests for the time until the next collection. Returns false if the thread has run for
    /// several intervals without a capture: then its timer is silent.
    pub(crate) fn arm(&mut self, cpu_ns: u64, interval_ns: u64) -> bool {
        let Some(batch) = &self.batch else {
            return false;
        };
        batch.request_all();
        if std::mem::take(&mut self.captures) > 0 {
            self.answered_cpu_ns = Some(cpu_ns);
        }
        let answered_ns = *self.answered_cpu_ns.get_or_insert(cpu_ns);
        let most_ns = MAX_SILENT_INTERVALS.saturating_mul(interval_ns);
        cpu_ns.saturating_sub(answered_ns) <= most_ns.max(MIN_SILENT_NS)
    }

    /// Returns how many captures wait.
    pub(crate) fn waiting(&self) -> u64 {
        self.batch.as_ref().map_or(0, SlotBatch::waiting)
    }

    /// Gives back memory of a thread that has been idle for long: that of deep stacks, or all if many
    /// threads have slots. Returns whether it has given back all.
    pub(crate) fn rest(&mut self) -> bool {
        let Some(batch) = &self.batch else {
            return false;
        };
        let gives_all = SlotBatch::are_many() && batch.waiting() == 0;
        match gives_all {
            true => self.release(),
            false => batch.release_deep_stacks(),
        }
        gives_all
    }

    /// Writes the captures that have arrived, and returns the time of the last one. The thread's clock
    /// reads `cpu_ns` now. If its time is known up to now, the captures stand for the CPU time, too, for
    /// which there is none: the interval is shorter than the kernel's ticks, or the slots were full.
    pub(crate) fn collect(
        &mut self,
        samples: &mut SampleRecorder,
        cpu_ns: Option<u64>,
        is_known: bool,
        context: &mut TickContext<'_>,
    ) -> Option<TimeStamp> {
        let batch = self.batch.as_ref()?;
        let (views, count) = batch.captures();
        self.captures += count;
        let missing = match is_known {
            true => samples.owed_running().saturating_sub(count),
            false => 0,
        };
        let missing = missing.min(context.max_owed_ticks());
        let mut last = None;
        for (number, view) in (1..).zip(views) {
            let more = missing * number / count - missing * (number - 1) / count;
            last = Some(view.header().time);
            write_kept(view, more, samples, cpu_ns, context);
        }
        last
    }
}

/// Writes a capture as a sample for its own tick and for `more` ticks after it.
fn write_kept(
    mut view: CapturedView<'_>,
    more: u64,
    samples: &mut SampleRecorder,
    cpu_ns: Option<u64>,
    context: &mut TickContext<'_>,
) {
    let header = *view.header();
    let counts = &context.session.counts;
    let lost = if view.enlarge_slot() {
        Some(&counts.repeated_captures)
    } else if !context.scratch.try_reserve(&view) {
        Some(&counts.dropped_samples)
    } else {
        None
    };
    if let Some(count) = lost {
        SessionCounts::add(count, 1);
        SessionCounts::add(&counts.unanswered_ticks, 1 + more);
        samples.lose(1 + more);
    } else {
        unwind_copy(context, &captured_by(&view));
        let Scratch {
            native,
            merged,
            stack,
        } = &mut *context.scratch;
        stack.set(native, &view, context.session.records_scripts(), merged);
        drop(view);
        // The handler has read the clock at its end.
        let answered_ns = header.cpu_ns.saturating_sub(header.handler_ns);
        let answered_ns = (header.cpu_ns > 0).then_some(answered_ns);
        let written = samples.write_running(header.time, more, answered_ns, context);
        SessionCounts::add(&counts.captured_samples, written);
    }
    let own_ns = samples.leave_out(header.handler_ns, cpu_ns);
    SessionCounts::add(&counts.stopped_ns, own_ns);
}
