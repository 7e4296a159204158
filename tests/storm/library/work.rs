//! The work of the loaded library. The storm does the same work, to compare the results.

use std::hint::black_box;
use std::panic::{catch_unwind, resume_unwind};

/// Returns a number that depends on all inputs, after `rounds` rounds of work.
pub fn mix(seed: u64, rounds: u64) -> u64 {
    let mut value = black_box(seed ^ 0x9e37_79b9_7f4a_7c15);
    for round in 0..rounds {
        value = (value.rotate_left(9) ^ round).wrapping_mul(0x2545_f491_4f6c_dd1d);
    }
    black_box(value)
}

/// Calls [`mix`] below `depth` calls.
#[inline(never)]
pub fn mix_deep(seed: u64, rounds: u64, depth: u64) -> u64 {
    let value = if depth == 0 {
        mix(seed, rounds)
    } else {
        mix_deep(seed, rounds, depth - 1)
    };
    black_box(value ^ depth)
}

/// Calls [`mix`] below `depth` calls, and returns its result as the payload of a panic.
pub fn mix_and_unwind(seed: u64, rounds: u64, depth: u64) -> u64 {
    #[inline(never)]
    fn throw(seed: u64, rounds: u64, depth: u64) -> u64 {
        if depth == 0 {
            resume_unwind(Box::new(mix(seed, rounds)));
        }
        black_box(throw(seed, rounds, depth - 1) + 1)
    }
    match catch_unwind(|| throw(seed, rounds, depth)) {
        Ok(_) => 0,
        Err(payload) => payload.downcast::<u64>().map_or(1, |value| *value),
    }
}
