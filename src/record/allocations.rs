//! Copies the stacks of sampled allocations and their frees, and hands both to the sampler.
//!
//! This code runs inside the application's allocator. So it takes no lock of the profiler but that of
//! the live allocations, and what it allocates itself is never sampled. The first copy on a thread
//! asks the system for the bounds of the stack.

use crate::allocations::{
    AllocationEvent, HookUse, LiveAllocation, SampledAllocation, add_free, add_live, uncount_free,
};
use crate::backtrace::count_lost_stack;
use crate::backtrace::{BacktraceParts, CapturedBacktrace, add_kept_stack, add_pending_stack};
use crate::platform::{KeptErrno, current_thread_id, monotonic_now};
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
        errno: _errno,
    } = sampled;
    let allocation = LiveAllocation {
        size,
        estimated_bytes,
        stack,
        time: monotonic_now(),
        thread: current_thread_id(),
    };
    add_live(address, allocation);
}

/// Records the free of a sampled allocation, with the stack of the function that this one is inlined
/// into. While the session is paused, and inside the profiler's own work, without a stack.
#[inline(always)]
pub(crate) fn record_free((address, allocation): (u64, LiveAllocation)) {
    let errno = KeptErrno::new();
    let in_use = HookUse::begin();
    let parts = BacktraceParts::LabelsAndStack;
    let stack = match in_use.is_some() && records_stacks() {
        true => hand_over(CapturedBacktrace::capture_here(parts), false),
        false => 0,
    };
    finish_free(address, &allocation, stack);
    drop((in_use, errno));
}

#[inline(never)]
fn finish_free(address: u64, allocation: &LiveAllocation, stack: u64) {
    let thread = current_thread_id();
    add_free(AllocationEvent::free(address, allocation, stack, thread));
}

/// Takes back a free that has been recorded: the allocator could not move the memory, which has this
/// size.
#[cold]
#[inline(never)]
pub(crate) fn undo_free(size: usize, freed: Option<(u64, LiveAllocation)>) {
    let _errno = KeptErrno::new();
    uncount_free(size);
    if let Some((address, allocation)) = freed {
        add_live(address, allocation);
    }
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
