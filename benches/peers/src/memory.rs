//! The memory of this process, as `/proc` tells it.

use std::fs::read_to_string;
use std::io::Result;

/// Of this process; 0 where `/proc` does not tell.
pub(crate) fn resident_bytes() -> u64 {
    status_bytes("VmRSS:")
}

/// Does something, and tells by how many bytes the process was larger at its largest meanwhile than it was before.
///
/// # Errors
/// Where the kernel does not let its high-water mark be set back.
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
    fn memory_is_resident() {
        assert!(resident_bytes() > 1 << 20);
    }

    #[test]
    fn a_peak_is_that_of_the_work_alone() {
        const BYTES: usize = 64 << 20;
        drop(std::hint::black_box(vec![1u8; 2 * BYTES]));
        let (_, peak) = peak_above(|| drop(std::hint::black_box(vec![1u8; BYTES]))).expect("/proc");
        assert!(
            (BYTES as u64 / 2..BYTES as u64 * 3 / 2).contains(&peak),
            "{peak}"
        );
    }
}
