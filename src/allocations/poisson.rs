//! Chooses allocations at random, so that each byte has the same chance.
//!
//! The distances between chosen bytes have an exponential distribution. So an allocation of `size`
//! bytes is sampled with the probability `1 - exp(-size / interval)`, whatever was allocated before
//! it. A sampled allocation represents `size` divided by this probability. The sums of these
//! numbers are unbiased for every size.

use crate::util::next_random;

/// Returns how many bytes one sampled allocation of `size` bytes represents.
pub(crate) fn estimated_bytes(size: u64, interval: u64) -> u64 {
    let ratio = size as f64 / interval.max(1) as f64;
    // `exp_m1` is exact for the small ratios of small allocations.
    let probability = -(-ratio).exp_m1();
    if probability <= 0.0 {
        return size;
    }
    (size as f64 / probability).round() as u64
}

/// Returns the number of bytes to the next chosen byte.
pub(crate) fn next_distance(random: &mut u64, interval: u64) -> u64 {
    // From the upper 53 bits, a number above 0 and at most 1.
    let uniform = ((next_random(random) >> 11) + 1) as f64 / (1u64 << 53) as f64;
    let distance = -uniform.ln() * interval as f64;
    // Rounded up, so that a sample of `size` bytes has exactly its probability.
    (distance.ceil() as i64).max(1).cast_unsigned()
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
