//! Numbers: fast hash maps with integer keys, and random numbers for whatever must not be in step
//! with the application.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A fast hasher for integers that the profiler assigns. It does not resist chosen collisions.
#[derive(Default, Clone, Copy, Debug)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, number: u64) {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let product = u128::from(self.0 ^ number) * u128::from(ODD);
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

pub(crate) type NumberMap<T> = HashMap<u64, T, BuildHasherDefault<NumberHasher>>;

/// Combines two numbers into one key.
pub(crate) const fn pair_key(one: u32, other: u32) -> u64 {
    (one as u64) << 32 | other as u64
}

/// Returns the next number of a SplitMix64 generator.
pub(crate) fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Returns a random number below `limit`.
pub(crate) fn random_below(state: &mut u64, limit: u64) -> u64 {
    ((u128::from(next_random(state)) * u128::from(limit)) >> 64) as u64
}
