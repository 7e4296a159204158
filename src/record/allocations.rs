//! Copies the stacks of sampled allocations and their frees, and hands both to the sampler.
//!
//! This code runs inside the application's allocator. So it takes no lock but that of the live
//! allocations, and what it allocates itself is never sampled.

use crate::allocations::{
    AllocationEvent, HookUse, LiveAllocation, SampledAllocation, add_event, add_live, uncount_free,
};
use crate::backtrace::count_lost_stack;
use crate::backtrace::{BacktraceParts, CapturedBacktrace, add_kept_stack, add_pending_stack};
use crate::platform::{current_thread_id, monotonic_now};
use crate::record::records_stacks;
use crate::state::{RacyFeatures, core_buffer};
use crate::types::StackFeatures;

/// Records an allocation with the stack of the function that this one is inlined into. While the
/// session is paused, records nothing.
#[inline(always)]
pub(crate) fn record_allocation(sampled: SampledAllocation) {
    if RacyFeatures::features_if_active_and_unpaused().is_none() {
        return;
    }
    let parts = BacktraceParts::LabelsAndStack;
    let stack = match records_stacks() {
        true => hand_over(CapturedBacktrace::capture_here(parts), true),
        false => 0,
    };
    finish_allocation(sampled, stack);
}

#[inline(never)]
fn finish_allocation(sampled: SampledAllocation, stack: u64) {
    let SampledAllocation {
        address,
        size,
        estimated_bytes,
        in_use: _in_use,
    } = sampled;
    let allocation = LiveAllocation {
        size,
        estimated_bytes,
        stack,
        time: monotonic_now(),
        thread: current_thread_id(),
    };
    if add_live(address, allocation) {
        add_event(AllocationEvent {
            address,
            size,
            estimated_bytes: signed(estimated_bytes),
            stack,
            time: allocation.time,
            thread: allocation.thread,
        });
    }
}

/// Records the free of a sampled allocation, with the stack of the function that this one is inlined
/// into. While the session is paused, and inside the profiler's own work, without a stack.
#[inline(always)]
pub(crate) fn record_free((address, allocation): (u64, LiveAllocation)) {
    let in_use = HookUse::begin();
    let parts = BacktraceParts::LabelsAndStack;
    let stack = match in_use.is_some() && records_stacks() {
        true => hand_over(CapturedBacktrace::capture_here(parts), false),
        false => 0,
    };
    finish_free(address, &allocation, stack, in_use);
}

/// Takes back a free that has been recorded: the allocator could not move the memory, which has this
/// size.
#[cold]
#[inline(never)]
pub(crate) fn undo_free(size: usize, freed: Option<(u64, LiveAllocation)>) {
    uncount_free(size);
    if let Some((address, allocation)) = freed
        && add_live(address, allocation)
    {
        add_event(AllocationEvent {
            address,
            size: allocation.size,
            estimated_bytes: signed(allocation.estimated_bytes),
            stack: allocation.stack,
            time: monotonic_now(),
            thread: allocation.thread,
        });
    }
}

#[inline(never)]
fn finish_free(address: u64, allocation: &LiveAllocation, stack: u64, _in_use: Option<HookUse>) {
    add_event(AllocationEvent {
        address,
        size: allocation.size,
        estimated_bytes: -signed(allocation.estimated_bytes),
        stack,
        time: monotonic_now(),
        thread: current_thread_id(),
    });
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Hands a stack to the sampler, and returns its number, or 0 if it was lost.
fn hand_over(backtrace: Option<CapturedBacktrace>, is_kept: bool) -> u64 {
    let (Some(session), Some(backtrace)) = (core_buffer().session(), backtrace) else {
        count_lost_stack();
        return 0;
    };
    match is_kept {
        true => add_kept_stack(backtrace, session),
        false => add_pending_stack(backtrace, session, StackFeatures::FULL),
    }
}
