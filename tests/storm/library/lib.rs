//! The library that the storm builds, loads, calls and unloads; `--cfg large` makes it half a megabyte larger, so that
//! different libraries come to lie at the same addresses.

mod work;

#[cfg(large)]
static BALLAST: [u64; 1 << 16] = {
    let mut words = [1; 1 << 16];
    words[0] = 2;
    words
};

/// A number made by work, by deep work, or by a panic, as `kind` says.
// SAFETY: no other library's function has this name.
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
