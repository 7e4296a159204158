//! Reads the memory usage of this process from `/proc`.

use std::fs::read_to_string;
use std::io::Result;

/// Returns the resident memory of this process, or 0 if `/proc` lacks it.
pub(crate) fn resident_bytes() -> u64 {
    status_bytes("VmRSS:")
}

/// Runs `work`, and returns by how many bytes the process's peak memory exceeded its memory before.
///
/// # Errors
/// Fails if the kernel does not allow resetting its high-water mark.
pub(crate) fn peak_above<T>(work: impl FnOnce() -> T) -> Result<(T, u64)> {
    std::fs::write("/proc/self/clear_refs", "5")?;
    let before = resident_bytes();
    let result = work();
    Ok((result, status_bytes("VmHWM:").saturating_sub(before)))
}

fn status_bytes(name: &str) -> u64 {
    let status = read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap_or_default();
    line.trim()
        .trim_end_matches(" kB")
        .parse::<u64>()
        .map_or(0, |kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_bytes_is_plausible() {
        assert!(resident_bytes() > 1 << 20);
    }

    #[test]
    fn peak_above_ignores_earlier_peaks() {
        const BYTES: usize = 64 << 20;
        drop(std::hint::black_box(vec![1u8; 2 * BYTES]));
        let (_, peak) = peak_above(|| drop(std::hint::black_box(vec![1u8; BYTES]))).expect("/proc");
        assert!(
            (BYTES as u64 / 2..BYTES as u64 * 3 / 2).contains(&peak),
            "{peak}"
        );
    }
}
