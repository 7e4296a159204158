//! The library that the storm builds, loads, calls and unloads. `--cfg large` makes it half a
//! megabyte larger, so that different libraries are mapped to the same addresses in turn.

mod work;

#[cfg(large)]
static BALLAST: [u64; 1 << 16] = {
    let mut words = [1; 1 << 16];
    words[0] = 2;
    words
};

/// Returns the result of plain work, deep work, or work with a panic, depending on `kind`.
// SAFETY: no other function has this name.
#[unsafe(no_mangle)]
pub extern "C" fn storm_library_work(kind: u64, seed: u64, rounds: u64) -> u64 {
    #[cfg(large)]
    let rounds = rounds + std::hint::black_box(&BALLAST)[(seed % 7) as usize + 1] - 1;
    match kind % 3 {
        0 => work::mix(seed, rounds),
        1 => work::mix_deep(seed, rounds, 30),
        _ => work::mix_and_unwind(seed, rounds, 12),
    }
}
