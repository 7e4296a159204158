//! The memory that the C library's allocator has handed out.
//!
//! **Contract** (cited below):
//! - *plain call*: the function takes no pointer, and may be called by any thread at any time.
#![allow(
    unsafe_code,
    reason = "the allocator's statistics have no safe interface"
)]

/// Returns the number of bytes that are allocated now. Freed bytes do not count.
pub(crate) fn allocated_bytes() -> u64 {
    // SAFETY: *plain call*.
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as u64
}

/// Returns freed memory to the system, so that it does not count as resident, and new memory does.
pub(crate) fn release_freed() {
    // SAFETY: *plain call*.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocated_bytes_counts_what_is_alive() {
        // Far more than other tests allocate at the same time.
        const BYTES: u64 = 1 << 30;
        let before = allocated_bytes();
        let block = std::hint::black_box(Vec::<u8>::with_capacity(BYTES as usize));
        assert!(allocated_bytes() > before + BYTES / 2);
        drop(block);
        release_freed();
        assert!(allocated_bytes() < before + BYTES / 2);
    }
}
