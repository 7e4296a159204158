//! Copies the stacks of sampled allocations and their frees, and hands both to the sampler.
//!
//! This code runs inside the application's allocator. So it takes no lock of the profiler but that of
//! the live allocations, and what it allocates itself is never sampled. The first copy on a thread
//! asks the system for the bounds of the stack.

use crate::allocations::{
    AllocationEvent, HookUse, LiveAllocation, SampledAllocation, add_free, add_live, choose_sample,
    find_freed, uncount_free,
};
use crate::backtrace::{
    BacktraceParts, CapturedBacktrace, add_kept_stack, add_pending_stack, count_lost_stack,
};
use crate::platform::{KeptErrno, current_thread_id, monotonic_now};
use crate::record::records_stacks;
use crate::state::{RacyFeatures, core_buffer};
use crate::types::StackFeatures;

/// Records an allocation with its stack if it is a sample. While the session is paused, records
/// nothing.
///
/// Not inlined, so that the allocator needs no space on the stack for the copy, and no instructions
/// for that space. So this function is the innermost one of the stack.
#[cold]
#[inline(never)]
pub(crate) fn sample_allocation(address: u64, size: usize) {
    let Some(sampled) = choose_sample(address, size) else {
        return;
    };
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

/// Records a free if it is that of a sampled allocation. Not inlined, as [`sample_allocation`].
#[cold]
#[inline(never)]
pub(crate) fn sample_free(address: u64) {
    record_free(address);
}

/// Like [`sample_free`], and returns the allocation, whose free may have to be taken back.
#[cold]
#[inline(never)]
pub(crate) fn sample_move(address: u64) -> Option<LiveAllocation> {
    record_free(address)
}

/// Records a free with the stack of the function that this one is inlined into. While the session is
/// paused, and inside the profiler's own work, without a stack.
#[inline(always)]
fn record_free(address: u64) -> Option<LiveAllocation> {
    let allocation = find_freed(address)?;
    let errno = KeptErrno::new();
    let in_use = HookUse::begin();
    let parts = BacktraceParts::LabelsAndStack;
    let stack = match in_use.is_some() && records_stacks() {
        true => hand_over(CapturedBacktrace::capture_here(parts), false),
        false => 0,
    };
    finish_free(address, &allocation, stack);
    drop((in_use, errno));
    Some(allocation)
}

#[inline(never)]
fn finish_free(address: u64, allocation: &LiveAllocation, stack: u64) {
    let thread = current_thread_id();
    add_free(AllocationEvent::free(address, allocation, stack, thread));
}

/// Takes back a free that has been counted and recorded: the allocator could not move the memory,
/// which has this address and size.
#[cold]
#[inline(never)]
pub(crate) fn undo_free(address: u64, size: usize, freed: Option<LiveAllocation>) {
    let _errno = KeptErrno::new();
    uncount_free(size);
    if let Some(allocation) = freed {
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
