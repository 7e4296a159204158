//! What the allocator calls for each allocation and each free.
//!
//! A call comes from any code of the application, also from code that runs while the profiler works
//! on the same thread, or while the thread ends. So this code takes no lock but that of the live
//! allocations, which is the last in the order of the locks, and panics nowhere.
//!
//! Allocations are chosen at random, so that each byte has the same chance. The distances between
//! chosen bytes have an exponential distribution. So an allocation of `size` bytes is sampled with
//! the probability `1 - exp(-size / interval)`, whatever was allocated before it. A sampled
//! allocation represents `size` divided by this probability. The sums of these numbers are unbiased
//! for every size.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::allocations::live::{
    LiveAllocation, forget_live, forget_live_in_child, may_be_live, prepare_live, take_live,
};
use crate::allocations::thread_counts::{
    AllocationCounts, HookUse, all_counts, counts, free_places_of_other_threads, own_counts,
    prepare_places, restart_sampling,
};
use crate::platform::{KeptErrno, monotonic_now};
use crate::types::Features;
use crate::util::next_random;

/// What the running session records of allocations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AllocationModes(u8);

impl AllocationModes {
    const COUNT: u8 = 1;
    const SAMPLE: u8 = 2;
    /// Asks whether the hook is called, while no session records allocations.
    const PROBE: u8 = 4;

    fn of(features: Features) -> Self {
        let bit = |feature, bit| if features.contains(feature) { bit } else { 0 };
        let counts = bit(Features::MEMORY, Self::COUNT);
        Self(counts | bit(Features::NATIVE_ALLOCATIONS, Self::SAMPLE))
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
/// Whether the hook was called during the last probe.
static IS_PROBED: AtomicBool = AtomicBool::new(false);
/// Mean number of bytes from one sample to the next.
static INTERVAL: AtomicU64 = AtomicU64::new(1);

/// Returns what the running session records of allocations.
#[inline(always)]
pub(crate) fn modes() -> AllocationModes {
    AllocationModes(MODES.load(Ordering::Relaxed))
}

/// An allocation that has been chosen and not recorded yet.
#[derive(Debug)]
pub(crate) struct SampledAllocation {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) estimated_bytes: u64,
    pub(crate) in_use: HookUse,
    pub(crate) errno: KeptErrno,
}

/// Counts an allocation that has succeeded. If this returns true, the caller gives the allocation to
/// [`choose_sample`].
#[inline(always)]
pub(crate) fn on_allocated(modes: AllocationModes, size: usize) -> bool {
    let Some(own) = own_counts() else {
        return on_allocated_elsewhere(modes, size);
    };
    let sum = own.count_allocation(size);
    modes.samples() && own.is_chosen(sum)
}

/// Does the work of [`on_allocated`] on a thread without a place of its own.
#[cold]
#[inline(never)]
fn on_allocated_elsewhere(modes: AllocationModes, size: usize) -> bool {
    if modes.0 == AllocationModes::PROBE {
        IS_PROBED.store(true, Ordering::Relaxed);
        return false;
    }
    let counts = counts();
    let sum = counts.count_allocation(size);
    modes.samples() && counts.is_chosen(sum)
}

/// Returns an allocation if it is a sample. It has brought the thread to its next one.
pub(crate) fn choose_sample(address: u64, size: usize) -> Option<SampledAllocation> {
    // The caller of an allocator may look at `errno` afterwards.
    let errno = KeptErrno::new();
    let counts = counts();
    let interval = INTERVAL.load(Ordering::Relaxed);
    let next = |random: &mut u64| next_distance(random, interval);
    if !counts.set_next(size as u64, next) {
        return None;
    }
    Some(SampledAllocation {
        address,
        size: size as u64,
        estimated_bytes: estimated_bytes(size as u64, interval),
        in_use: HookUse::begin()?,
        errno,
    })
}

/// Returns how many bytes one sampled allocation of `size` bytes represents.
fn estimated_bytes(size: u64, interval: u64) -> u64 {
    let ratio = size as f64 / interval.max(1) as f64;
    // `exp_m1` is exact for the small ratios of small allocations.
    let probability = -(-ratio).exp_m1();
    if probability <= 0.0 {
        return size;
    }
    (size as f64 / probability).round() as u64
}

/// Returns the number of bytes to the next chosen byte.
fn next_distance(random: &mut u64, interval: u64) -> u64 {
    // From the upper 53 bits, a number above 0 and at most 1.
    let uniform = ((next_random(random) >> 11) + 1) as f64 / (1u64 << 53) as f64;
    let distance = -uniform.ln() * interval as f64;
    // Rounded up, so that a sample of `size` bytes has exactly its probability.
    (distance.ceil() as i64).max(1).cast_unsigned()
}

/// Counts a free. Call it before the memory goes back to the allocator. Returns whether the memory may
/// be a sampled allocation. If so, the caller asks [`find_freed`].
#[inline(always)]
pub(crate) fn on_free(modes: AllocationModes, address: u64, size: usize) -> bool {
    match own_counts() {
        Some(own) => own.count_free(size),
        None => on_free_elsewhere(modes, size),
    }
    modes.samples() && may_be_live(address)
}

/// Does the work of [`on_free`] on a thread without a place of its own.
#[cold]
#[inline(never)]
fn on_free_elsewhere(modes: AllocationModes, size: usize) {
    if modes.0 != AllocationModes::PROBE {
        counts().count_free(size);
    }
}

/// Returns the sampled allocation that is being freed, if the memory at this address is one.
pub(crate) fn find_freed(address: u64) -> Option<LiveAllocation> {
    let _errno = KeptErrno::new();
    take_live(address)
}

/// Takes back the count of a free: the allocator could not move the memory, so it is still allocated.
pub(crate) fn uncount_free(size: usize) {
    counts().uncount_free(size);
}

/// Begins to count and sample for a session with these features. The bytes between two samples are
/// `interval` on average, which is not 0. Returns what has been counted before. Without memory for
/// samples, begins without them.
pub(crate) fn begin_allocations(features: Features, interval: u64) -> AllocationCounts {
    let mut modes = AllocationModes::of(features);
    if !modes.is_off() {
        prepare_places();
    }
    INTERVAL.store(interval, Ordering::Relaxed);
    if modes.samples() {
        if prepare_live() {
            restart_sampling(monotonic_now().0);
        } else {
            modes = AllocationModes(modes.0 & !AllocationModes::SAMPLE);
        }
    }
    let before = all_counts();
    MODES.store(modes.0, Ordering::Release);
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
pub(crate) fn end_allocations_in_child() {
    MODES.store(0, Ordering::Relaxed);
}

/// Forgets the parent's threads and samples in the child of a fork.
pub(crate) fn forget_allocations_in_child() {
    free_places_of_other_threads();
    forget_live_in_child();
}

/// Returns whether the program's allocator calls this hook. Costs an allocation.
pub(crate) fn is_hook_installed() -> bool {
    // Only the hook gives a thread a place of its own.
    if own_counts().is_some() {
        return true;
    }
    let set = |from, to| {
        let set = MODES.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        set.is_ok()
    };
    while !set(0, AllocationModes::PROBE) {
        // Only a program with the hook has modes. Another thread may be asking the same.
        if MODES.load(Ordering::Relaxed) & !AllocationModes::PROBE != 0 {
            return true;
        }
        std::thread::yield_now();
    }
    IS_PROBED.store(false, Ordering::Relaxed);
    drop(black_box(Box::new(0u64)));
    set(AllocationModes::PROBE, 0);
    IS_PROBED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: u64 = 64 << 10;

    /// Samples `count` allocations of `size` bytes, and returns the sum of the estimates.
    fn estimate(size: u64, count: u64, random: &mut u64) -> u64 {
        let mut left = next_distance(random, INTERVAL).cast_signed();
        let mut sum = 0;
        for _ in 0..count {
            left -= size as i64;
            if left <= 0 {
                sum += estimated_bytes(size, INTERVAL);
                left = next_distance(random, INTERVAL).cast_signed();
            }
        }
        sum
    }

    #[test]
    fn estimates_of_every_size_add_up_to_the_true_bytes() {
        let mut random = 7;
        for size in [1, 16, 100, 4096, 60_000, 64 << 10, 1 << 20, 1 << 30] {
            // About 40,000 samples each, so that 3 % are more than six standard deviations.
            let count = 40_000 * (INTERVAL / size).max(1);
            let truth = (size * count) as f64;
            let error = estimate(size, count, &mut random) as f64 / truth - 1.0;
            assert!(error.abs() < 0.03, "{size}: {error}");
        }
    }

    #[test]
    fn small_and_huge_sizes_have_estimates() {
        assert_eq!(estimated_bytes(0, INTERVAL), 0);
        assert!(estimated_bytes(1, INTERVAL).abs_diff(INTERVAL) <= 1);
        assert_eq!(estimated_bytes(1 << 40, INTERVAL), 1 << 40);
        assert_eq!(estimated_bytes(64, 0), 64);
        assert_eq!(next_distance(&mut 1, 0), 1);
    }
}
