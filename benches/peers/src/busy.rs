//! Real work: sorting and hashing, a few functions deep.
//!
//! It allocates nothing while it works. A peer that unwinds in its signal handler could otherwise
//! deadlock on a lock that the interrupted allocator holds.

use std::sync::atomic::{AtomicU64, Ordering};

/// A fixed amount of work that threads share. The result does not depend on how they divide the
/// portions.
pub(crate) struct SharedWork {
    portions: u64,
    next: AtomicU64,
}

impl SharedWork {
    /// Creates work of this many portions, about 10 µs each.
    pub(crate) fn new(portions: u64) -> Self {
        Self {
            portions,
            next: AtomicU64::new(0),
        }
    }

    /// Works on portions until none are left, and returns the sum of their results.
    pub(crate) fn take_part(&self) -> u64 {
        /// Portions claimed at once: enough that threads rarely contend for the counter, few enough
        /// that they end together.
        const PORTIONS_PER_CLAIM: u64 = 8;
        let mut numbers = Box::new([0; 512]);
        let mut sum = 0u64;
        loop {
            let first = self.next.fetch_add(PORTIONS_PER_CLAIM, Ordering::Relaxed);
            if first >= self.portions {
                return sum;
            }
            for portion in first..self.portions.min(first + PORTIONS_PER_CLAIM) {
                sum = sum.wrapping_add(work(portion << 1, &mut numbers));
            }
        }
    }
}

/// Does about 10 µs of work.
#[inline(never)]
pub(crate) fn work(seed: u64, numbers: &mut [u64; 512]) -> u64 {
    fill(seed, numbers);
    sort(numbers);
    hash(numbers)
}

#[inline(never)]
fn fill(seed: u64, numbers: &mut [u64]) {
    let mut state = seed | 1;
    for number in numbers {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *number = state;
    }
}

#[inline(never)]
fn sort(numbers: &mut [u64]) {
    numbers.sort_unstable();
}

#[inline(never)]
fn hash(numbers: &[u64]) -> u64 {
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_work_result_does_not_depend_on_the_threads() {
        let alone = SharedWork::new(100).take_part();
        let shared = SharedWork::new(100);
        let parts = std::thread::scope(|scope| {
            let other = scope.spawn(|| shared.take_part());
            let own = shared.take_part();
            own.wrapping_add(other.join().expect("no panic"))
        });
        assert_eq!(parts, alone);
    }
}
