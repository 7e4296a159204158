//! Reads code: tells whether a function is still at its address, by its first bytes, and whether a
//! signal interrupted a system call of its thread, by the instruction at its registers.

use nix::errno::Errno;

use crate::platform::arch::{RESULT_REGISTER, Registers, SYSTEM_CALL};
use crate::platform::memory::guarded_memory::read_own_memory;

/// Number of bytes to compare. It is enough to tell functions apart, because their calls and
/// constants are within it.
const BYTES: usize = 48;
/// Page size, in bytes. The page after the function's first one may be unmapped.
const PAGE_BYTES: usize = 4096;

/// The first bytes of a function at the time of the copy.
#[derive(Debug)]
pub(crate) struct CodeBytes {
    address: u64,
    /// The bytes, at most up to the end of their page. `None` if the system has no way to read
    /// memory that may be unmapped.
    bytes: Option<[u8; BYTES]>,
}

impl CodeBytes {
    /// Copies the first bytes of `function`. Cost: two short system calls, and sometimes
    /// a check for a sandbox.
    pub(crate) fn at(function: *const ()) -> Self {
        let address = function.addr() as u64;
        Self {
            address,
            bytes: read(address),
        }
    }

    /// Returns true if the function still has the same first bytes, or if they could not be read by
    /// [`at`](Self::at). Cost: that of `at`.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.bytes
            .is_none_or(|bytes| read(self.address) == Some(bytes))
    }
}

fn read(address: u64) -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    let page_remainder = PAGE_BYTES - address as usize % PAGE_BYTES;
    read_own_memory(address, &mut bytes[..BYTES.min(page_remainder)]).then_some(bytes)
}

/// Returns whether the thread waited in a system call when a signal interrupted it with these
/// registers. Either the call returns `EINTR`, or the thread makes it once more.
///
/// Also returns true if the registers are unknown. Cost: at most that of [`read_own_memory`].
pub(crate) fn is_interrupted_wait(registers: &Registers) -> bool {
    let Some(general) = registers.general else {
        return true;
    };
    let interrupted = -i64::from(Errno::EINTR as i32);
    if general[RESULT_REGISTER].cast_signed() == interrupted {
        return true;
    }
    is_system_call(registers.pc)
}

/// Returns whether a signal with these registers was handled at the end of a system call, so that the
/// thread was in the kernel. Cost: at most that of [`read_own_memory`].
pub(crate) fn is_after_system_call(registers: &Registers) -> bool {
    is_system_call(registers.pc.wrapping_sub(SYSTEM_CALL.len() as u64))
}

fn is_system_call(address: u64) -> bool {
    let mut instruction = [0; SYSTEM_CALL.len()];
    read_own_memory(address, &mut instruction) && instruction == SYSTEM_CALL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_unchanged_detects_another_function_and_unmapped_memory() {
        let own = CodeBytes::at(CodeBytes::is_unchanged as *const ());
        assert!(own.bytes.is_some() && own.is_unchanged());
        let elsewhere = CodeBytes {
            address: (CodeBytes::at as *const ()).addr() as u64,
            ..own
        };
        assert!(!elsewhere.is_unchanged());
        assert!(
            !CodeBytes {
                address: 16,
                ..elsewhere
            }
            .is_unchanged()
        );
        assert!(
            CodeBytes {
                address: 16,
                bytes: None
            }
            .is_unchanged()
        );
        let near_page_end = (own.address | (PAGE_BYTES as u64 - 1)) - 7;
        let bytes = CodeBytes::at(near_page_end as *const ())
            .bytes
            .expect("the page is readable");
        assert!(
            bytes[8..].iter().all(|byte| *byte == 0),
            "only bytes of the first page are copied"
        );
    }
}
