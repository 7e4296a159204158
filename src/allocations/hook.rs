//! What the allocator calls for each allocation and each free.
//!
//! A call comes from any code of the application, also from code that runs while the profiler works
//! on the same thread, or while the thread ends. So this code takes no lock but that of the live
//! allocations, which is the last in the order of the locks, and panics nowhere.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::allocations::live::{LiveAllocation, forget_live, may_be_live, take_live};
use crate::allocations::poisson::{estimated_bytes, next_distance};
use crate::allocations::thread_counts::{
    AllocationCounts, ThreadCounts, all_counts, is_of_profiler, own_counts, prepare_places,
    restart_sampling,
};
use crate::types::Features;
use crate::util::{LockRank, holds_rank, is_any_lock_held_on_current_thread};

/// What the running session records of allocations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AllocationModes(u8);

impl AllocationModes {
    const NONE: Self = Self(0);
    const COUNT: u8 = 1;
    const SAMPLE: u8 = 2;

    fn of(features: Features) -> Self {
        let samples = features.contains(Features::NATIVE_ALLOCATIONS);
        let counts = features.contains(Features::MEMORY);
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        Self(bit(counts, Self::COUNT) | bit(samples, Self::SAMPLE))
    }

    #[inline(always)]
    pub(crate) fn is_off(self) -> bool {
        self.0 == 0
    }

    #[inline(always)]
    fn samples(self) -> bool {
        self.0 & Self::SAMPLE != 0
    }
}

static MODES: AtomicU8 = AtomicU8::new(0);
/// Mean number of bytes from one sample to the next.
static INTERVAL: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// Whether this thread records a sample. It has no destructor, so destructors of other
    /// thread-locals can still use it.
    static IS_RECORDING: Cell<bool> = const { Cell::new(false) };
}

/// Returns what the running session records of allocations.
#[inline(always)]
pub(crate) fn modes() -> AllocationModes {
    AllocationModes(MODES.load(Ordering::Relaxed))
}

/// Keeps allocations of the thread from being sampled while it records one.
#[derive(Debug)]
pub(crate) struct HookUse(());

impl HookUse {
    /// Returns `None` inside the profiler's own work.
    pub(crate) fn begin() -> Option<Self> {
        if is_any_lock_held_on_current_thread() || IS_RECORDING.replace(true) {
            return None;
        }
        Some(Self(()))
    }
}

impl Drop for HookUse {
    fn drop(&mut self) {
        IS_RECORDING.set(false);
    }
}

/// An allocation that has been chosen and not recorded yet.
#[derive(Debug)]
pub(crate) struct SampledAllocation {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) estimated_bytes: u64,
    pub(crate) in_use: HookUse,
}

/// Counts an allocation that has succeeded. Returns it if it is chosen as a sample.
#[inline(always)]
pub(crate) fn on_allocated(
    modes: AllocationModes,
    address: u64,
    size: usize,
) -> Option<SampledAllocation> {
    let counts = own_counts();
    counts.add(size as i64, 1);
    if modes.samples() && counts.is_chosen(size as i64) {
        return choose(counts, address, size);
    }
    None
}

#[cold]
#[inline(never)]
fn choose(counts: &ThreadCounts, address: u64, size: usize) -> Option<SampledAllocation> {
    let interval = INTERVAL.load(Ordering::Relaxed);
    let next = |random: &mut u64| next_distance(random, interval);
    let was_distance = counts.set_next(next);
    if !was_distance {
        // The thread had no distance before, so the new one begins before this allocation.
        if !counts.is_chosen(size as i64) {
            return None;
        }
        counts.set_next(next);
    }
    if is_of_profiler(counts) {
        return None;
    }
    Some(SampledAllocation {
        address,
        size: size as u64,
        estimated_bytes: estimated_bytes(size as u64, interval),
        in_use: HookUse::begin()?,
    })
}

/// Counts a free. Call it before the memory goes back to the allocator. Returns the allocation if it
/// was sampled, with its address.
#[inline(always)]
pub(crate) fn on_free(
    modes: AllocationModes,
    address: u64,
    size: usize,
) -> Option<(u64, LiveAllocation)> {
    own_counts().add((size as i64).wrapping_neg(), 1);
    if modes.samples() && may_be_live(address) {
        return find(address);
    }
    None
}

#[cold]
#[inline(never)]
fn find(address: u64) -> Option<(u64, LiveAllocation)> {
    // The list's own memory is never sampled.
    if holds_rank(LockRank::LiveAllocations) {
        return None;
    }
    take_live(address).map(|allocation| (address, allocation))
}

/// Takes back the count of a free: the allocator could not move the memory, so it is still allocated.
pub(crate) fn uncount_free(size: usize) {
    own_counts().add(size as i64, 0);
}

/// Begins to count and sample for a session with these features. The bytes between two samples are
/// `interval` on average. Returns what has been counted before.
pub(crate) fn begin_allocations(features: Features, interval: u64) -> AllocationCounts {
    let modes = AllocationModes::of(features);
    INTERVAL.store(interval.max(1), Ordering::Relaxed);
    if modes.samples() {
        forget_live();
        restart_sampling();
    }
    if !modes.is_off() {
        prepare_places();
    }
    let before = all_counts();
    MODES.store(modes.0, Ordering::Relaxed);
    before
}

/// Ends counting and sampling.
pub(crate) fn end_allocations() {
    let before = AllocationModes(MODES.swap(0, Ordering::Relaxed));
    if before.samples() {
        forget_live();
    }
}

/// Ends counting and sampling in the child of a fork. Takes no lock.
pub(crate) fn forget_allocations_in_child() {
    MODES.store(AllocationModes::NONE.0, Ordering::Relaxed);
}

/// Returns whether the program's allocator calls this hook. Ask while the session counts or samples.
pub(crate) fn is_hook_installed() -> bool {
    let before = all_counts().operations;
    drop(black_box(Box::new(0u64)));
    all_counts().operations != before
}
