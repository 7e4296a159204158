//! The stack of a blocked thread is read by the sampler's thread, without waking it.

use std::sync::atomic::Ordering;

use super::ThreadSampler;
use crate::capture::{CutCopy, SlotHandle};
use crate::platform::{BlockedAt, ProbeResult, monotonic_now, thread_cpu_ns};
use crate::sampler::handler::READS_CLOCK;
use crate::sampler::thread_sampler::frame_pointer_cache::registers_at;
use crate::sampler::thread_sampler::signal_request::SignalMask;
use crate::sampler::tick_context::{Scratch, TickContext, captured_by, unwind_counted};
use crate::state::SessionCounts;

/// Time until the sampler asks again whether a thread is blocked, after the system has refused to
/// report it, in ns. A process can become dumpable again, and `/proc` can be mounted.
const HIDDEN_NS: u64 = 1_000_000_000;

impl ThreadSampler {
    /// Samples a thread that is blocked at `at` and has no pending request.
    pub(super) fn sample_blocked(
        &mut self,
        slot: &SlotHandle,
        at: BlockedAt,
        cpu_ns: Option<u64>,
        context: &mut TickContext<'_>,
    ) {
        if at.awaits_signals {
            self.signal_mask = SignalMask::Masked { since_ns: 0 };
            // Between two signals, the event would fire, and the thread would receive that one.
            self.own.end_event();
        }
        if let Some(cpu_ns) = cpu_ns {
            self.own.draw_period(cpu_ns, context.interval_ns());
        }
        // Since the thread's clock was read. What it captures from here on fails the reading below.
        self.collect_latest(context);
        if !self.capture_remotely(slot, at, cpu_ns, context) {
            self.request_by_signal(slot, cpu_ns, Some(at), context);
        }
    }

    /// Returns whether the thread is blocked, and where. `runs` says that it has run until now.
    pub(super) fn look(&mut self, runs: bool, context: &TickContext<'_>) -> ProbeResult {
        let is_hidden = |until| context.tick.time < until;
        if runs || self.hidden_until.is_some_and(is_hidden) {
            return ProbeResult::NotBlocked;
        }
        let seen = self.probe.probe();
        match seen {
            ProbeResult::Blocked(_) => self.hidden_until = None,
            ProbeResult::FallingAsleep | ProbeResult::NotBlocked => {}
            ProbeResult::Hidden => {
                let next_attempt = context.tick.time.plus_ns(HIDDEN_NS);
                if self.hidden_until.replace(next_attempt).is_none() {
                    SessionCounts::add(&context.session.counts.hidden_threads, 1);
                }
                READS_CLOCK.store(true, Ordering::Relaxed);
            }
        }
        seen
    }

    /// Reads the stack of a thread that is blocked at `at` without waking it. Returns false if the
    /// thread must be signaled instead.
    fn capture_remotely(
        &mut self,
        slot: &SlotHandle,
        at: BlockedAt,
        cpu_ns: Option<u64>,
        context: &mut TickContext<'_>,
    ) -> bool {
        // Read before the stack, since a later announcement belongs to another sleep.
        let announced = self.announced_sleep();
        let tid = self.tid();
        // The thread has not run if its clock still has the value from before the stack was read.
        let stood_still = || cpu_ns.is_some() && thread_cpu_ns(tid) == cpu_ns;
        if !slot.capture_remotely(registers_at(at), monotonic_now(), stood_still) {
            return false;
        }
        let Some(view) = slot.captured() else {
            return false;
        };
        if !context.scratch.try_reserve(&view) {
            SessionCounts::add(&context.session.counts.dropped_samples, 1);
            return true;
        }
        let captured = captured_by(&view);
        // Whether the frame pointer is missing; `None` if the session does not walk stacks.
        let unwound = unwind_counted(context, |unwinder, native| {
            self.frame_pointers.unwind(at, &captured, unwinder, native)
        });
        if context.scratch.native.truncated
            && let Some(found) = self.found.as_mut().filter(|found| !found.contains(at.sp))
        {
            match found.after_cut_copy(slot, view.stack().len()) {
                CutCopy::IsComplete => {}
                CutCopy::RepeatLonger => {
                    drop(view);
                    return self.capture_remotely(slot, at, cpu_ns, context);
                }
                CutCopy::AskThread if self.blocks_signal(Some(at), context) => {}
                CutCopy::AskThread => return false,
            }
        }
        // If a request at this place did not supply the frame pointer, do not send another. A
        // thread that masks the signal would not answer.
        if unwound == Some(true)
            && !self.blocks_signal(Some(at), context)
            && self.fp_requested_at.replace(at) != Some(at)
        {
            return false;
        }
        self.fp_requested_at = None;
        let Scratch {
            native,
            merged,
            stack,
        } = &mut context.scratch;
        if unwound.is_none() {
            context.unwinder.unwind_innermost(&captured, native);
        }
        stack.set(native, &view, context.session.records_scripts(), merged);
        stack.set_wait(at.wait);
        let is_doubtful = native.doubtful;
        let time = view.header().time;
        drop(view);
        let written = self.samples.write_sample(time, cpu_ns, context);
        SessionCounts::add(&context.session.counts.remote_samples, written);
        if is_doubtful {
            // The stack is doubtful, so the next tick captures it again.
            return true;
        }
        self.begin_idle_period(cpu_ns, announced, context);
        slot.release_deep_stack();
        true
    }
}
