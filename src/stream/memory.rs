//! Checks that there is memory for the next step of a profile.
//!
//! The tables of a profile, the JSON writer and the libraries that read debug information end the
//! process if an allocation fails. So the job asks for the memory before each large step, and ends
//! with an error instead, or continues with less data (`decode_newest`).
//!
//! A step asks for the tables as if each of them doubled, and small allocations are covered by a
//! margin. While a session records, the buffer keeps four times its entries free for a save
//! (`buffer/session_chunks.rs`).

use std::io;

use crate::platform::{is_mappable, limits_leave};
use crate::util::allocator_has;

/// Memory for the small allocations between two checks, and for the application, in bytes.
const MARGIN_BYTES: usize = 2 << 20;

/// Returns whether an error is one of [`check_memory`], and not only caused by one.
pub(crate) fn is_out_of_memory(error: &io::Error) -> bool {
    let cause = error.get_ref();
    error.kind() == io::ErrorKind::OutOfMemory
        && cause.is_some_and(|cause| !cause.is::<io::Error>())
}

/// Checks that the system has `bytes` bytes for the next step of a profile.
///
/// # Errors
/// It does not.
pub(crate) fn check_memory(bytes: usize) -> io::Result<()> {
    let needed_bytes = bytes.saturating_add(MARGIN_BYTES);
    // The allocator may have free memory of its own. It is asked only then, because such a large
    // allocation changes how glibc serves later ones.
    let is_mappable = || is_mappable(needed_bytes) || allocator_has(needed_bytes);
    match is_mappable() && limits_leave(needed_bytes) {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::OutOfMemory,
            format!(
                "out of memory: expected {needed_bytes} free bytes for the next step, got less"
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_says_how_much_memory_was_needed() {
        check_memory(1 << 10).expect("memory");
        let error = check_memory(usize::MAX >> 1).expect_err("no such memory");
        assert!(is_out_of_memory(&error));
        assert!(!is_out_of_memory(&io::ErrorKind::OutOfMemory.into()));
        let caused = io::Error::new(
            error.kind(),
            check_memory(usize::MAX).expect_err("as before"),
        );
        assert!(!is_out_of_memory(&caused));
        assert_eq!(caused.kind(), io::ErrorKind::OutOfMemory);
        let text = error.to_string();
        assert!(
            text.starts_with("out of memory: expected 92233720"),
            "{text}"
        );
    }
}
