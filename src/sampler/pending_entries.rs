//! What other threads leave for the sampler to write: stacks of markers, which the threads that added
//! the markers have copied; where async tasks have waited; and probes of event loops.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::backtrace::{PendingStack, count_lost_stack, refill_words, take_pending_stacks};
use crate::buffer::{EntryHead, EntryKind};
use crate::event_loop::{EventWatches, ProbedLoop};
use crate::platform::monotonic_now;
use crate::sampler::allocation_stacks::keep_stack;
use crate::sampler::tick_context::{TickContext, captured_of_backtrace, unwind_counted};
use crate::state::SessionCounts;
use crate::types::{CodeAddress, Features, StackAddress, StackFeatures};
use crate::unwind::{NativeFrame, NativeStack};
use crate::waiting_tasks::{StackNames, WaitLosses, WaitRow, swap_wait_rows, wait_losses};

/// Collects the pending stacks of this session. Stacks that belong to another session are dropped.
pub(crate) fn write_pending_stacks(context: &mut TickContext<'_>) {
    take_pending_stacks(|pending| {
        if pending.session == context.session.generation && !write_stack(context, &pending) {
            count_lost_stack();
        }
    });
    refill_words();
}

fn write_stack(context: &mut TickContext<'_>, pending: &PendingStack) -> bool {
    let PendingStack {
        number,
        features,
        is_kept,
        backtrace,
        ..
    } = pending;
    let session = context.session;
    let walks = session.settings.features.contains(Features::STACK_WALK);
    if !context.scratch.try_reserve_for_backtrace(backtrace) {
        return false;
    }
    context.scratch.native.truncated = false;
    if let Some(addresses) = backtrace.return_addresses() {
        let max_frames = if walks { addresses.len() } else { 1 };
        let addresses = &addresses[..max_frames.min(addresses.len())];
        set_frames(addresses, &mut context.scratch.native);
    } else if features.contains(StackFeatures::NATIVE) && walks {
        let captured = captured_of_backtrace(backtrace);
        unwind_counted(context, |unwinder, native| {
            unwinder.unwind(&captured, native)
        });
    } else if features.contains(StackFeatures::LEAF) {
        let captured = captured_of_backtrace(backtrace);
        let native = &mut context.scratch.native;
        context.unwinder.unwind_innermost(&captured, native);
    }
    let modules = context.unwinder.modules().number();
    let scratch = &mut context.scratch;
    let (native, merged, stack) = (&scratch.native, &mut scratch.merged, &mut scratch.stack);
    stack.set_backtrace(native, backtrace, session.records_scripts(), merged);
    SessionCounts::add(&session.counts.marker_stacks, 1);
    let (number, time) = (*number, backtrace.head.time);
    if *is_kept && !keep_stack(number, time, modules, stack) {
        let count = &session.counts.unkept_allocation_stacks;
        if count.fetch_add(1, Ordering::Relaxed) == 0 {
            (session.log).add("no space for the stacks of more allocations");
        }
    }
    (context.writer).write_backtrace(number, time, modules, stack)
}

/// Converts return addresses to frames, innermost first. In a stack, the address of the innermost
/// frame is an instruction. So 1 is subtracted from the first return address, which moves it into
/// the call instruction.
fn set_frames(return_addresses: &[u64], native: &mut NativeStack) {
    let frame = |(index, address): (usize, &u64)| NativeFrame {
        address: CodeAddress::new(if index == 0 { address - 1 } else { *address }),
        stack_address: StackAddress(0),
    };
    (native.frames).extend(return_addresses.iter().enumerate().map(frame));
}

/// Maximum number of passes through the rows for one profile, far above what is needed: threads add
/// rows between two passes.
pub(super) const MAX_PASSES: u32 = 64;

/// What the writer of waits keeps from call to call.
#[derive(Debug, Default)]
pub(super) struct WaitScratch {
    rows: Vec<WaitRow>,
    names: StackNames,
    /// The losses that are counted.
    seen: WaitLosses,
}

impl WaitScratch {
    /// Adds new losses to the session's counts.
    pub(super) fn count_losses(&mut self, counts: &SessionCounts) {
        let now = wait_losses();
        let add = |count, now: u64, seen: &mut u64| {
            SessionCounts::add(count, now.saturating_sub(*seen));
            *seen = now.max(*seen);
        };
        add(&counts.lost_waits, now.waits, &mut self.seen.waits);
        let intervals = &mut self.seen.intervals;
        add(&counts.left_out_wait_intervals, now.intervals, intervals);
    }
}

/// Writes the rows that have been added since the last call.
pub(super) fn write_waits(context: &mut TickContext<'_>, scratch: &mut WaitScratch) {
    let WaitScratch { rows, names, .. } = scratch;
    swap_wait_rows(rows);
    let modules = context.unwinder.modules().number();
    for row in rows.drain(..) {
        let stack = &mut context.scratch.stack;
        let has_memory = names.read(row.stack)
            && stack.try_reserve(names.len() + 1, names.len() + 1, names.text_bytes());
        if has_memory {
            stack.set_task_names(names, row.context);
        }
        if !has_memory || !context.writer.write_wait(&row, modules, stack) {
            SessionCounts::add(&context.session.counts.lost_waits, 1);
        }
    }
}

/// The probed event loops that the sampler knows. Each probe is written as a separate entry, which
/// spans the time from posting to answer. It is not part of a sample, so the sampler does no work for
/// a sleeping thread that has not answered yet.
#[derive(Debug, Default)]
pub(crate) struct EventProbeRecorder {
    version: u64,
    loops: Vec<Arc<ProbedLoop>>,
}

impl EventProbeRecorder {
    /// Writes the answered probes. With `with_open`, also writes the pending ones, which are
    /// written again when they are answered.
    pub(crate) fn record(&mut self, context: &TickContext<'_>, with_open: bool) {
        let session = context.session;
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
            let end = (probe.answered).or_else(|| probed.thread.unregistered_at());
            if (end.is_some() || with_open) && probed.is_profiled() {
                let thread = probed.thread.unlocked_const_reader_and_atomic_rw();
                thread.note_entry(session.generation);
                let mut entry = EntryHead::new(EntryKind::EventProbe);
                entry
                    .number(probed.thread.serial())
                    .number(probe.posted.since_ns(session.process_start))
                    .number(end.map_or(0, |end| 1 + end.since_ns(probe.posted)));
                context.put(now, &entry);
            }
            if end.is_some() {
                probed.set_recorded(probe);
            }
        }
    }
}
