//! Random numbers, for whatever must not be in step with the application.

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
