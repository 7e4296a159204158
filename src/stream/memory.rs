//! Checks that there is memory for the next step of a profile.
//!
//! The tables of a profile, the JSON writer and the libraries that read debug information end the
//! process if an allocation fails. So the job asks for the memory before each step, and ends with
//! an error instead, or goes on with less (`decode/newest.rs`).

use std::error::Error;
use std::fmt;
use std::io;

use crate::platform::{is_mappable, limits_leave};
use crate::util::allocator_has;

/// Memory for the small allocations between two checks, and for the application, in bytes.
const MARGIN_BYTES: usize = 2 << 20;

/// The error for a profile that there is no memory for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OutOfMemory {
    needed_bytes: usize,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "out of memory: expected {} free bytes for the next step, got less",
            self.needed_bytes
        )
    }
}

impl Error for OutOfMemory {}

impl From<OutOfMemory> for io::Error {
    fn from(error: OutOfMemory) -> Self {
        Self::new(io::ErrorKind::OutOfMemory, error)
    }
}

impl OutOfMemory {
    /// Returns whether an error is an `OutOfMemory`.
    pub(crate) fn is_cause_of(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|cause| cause.is::<Self>())
    }
}

/// Checks that the system has `bytes` bytes for the next step of a profile.
///
/// # Errors
/// It does not.
pub(crate) fn check_memory(bytes: usize) -> Result<(), OutOfMemory> {
    let needed_bytes = bytes.saturating_add(MARGIN_BYTES);
    // The allocator may have free memory of its own. It is asked only then, because such a large
    // allocation changes how glibc serves later ones.
    let is_mappable = || is_mappable(needed_bytes) || allocator_has(needed_bytes);
    match is_mappable() && limits_leave(needed_bytes) {
        true => Ok(()),
        false => Err(OutOfMemory { needed_bytes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_says_how_much_memory_was_needed() {
        assert_eq!(check_memory(1 << 10), Ok(()));
        let error = check_memory(usize::MAX >> 1).expect_err("no such memory");
        let error = io::Error::from(error);
        assert!(OutOfMemory::is_cause_of(&error));
        assert!(!OutOfMemory::is_cause_of(
            &io::ErrorKind::OutOfMemory.into()
        ));
        let text = error.to_string();
        assert!(
            text.starts_with("out of memory: expected 92233720"),
            "{text}"
        );
    }
}
