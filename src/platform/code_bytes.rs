//! Whether a function is still where it was: its first bytes, compared.

use crate::platform::guarded_memory::{follow_sandbox_now, read_own_memory};

/// Enough to tell functions apart, whose calls and constants are within.
const BYTES: usize = 48;
/// What lies behind the end of a page may not be there.
const PAGE_BYTES: usize = 4096;

/// The first bytes of a function, as they were.
#[derive(Debug)]
pub(crate) struct CodeBytes {
    address: u64,
    /// Up to the end of its page; `None` where the system has no way to read memory that may not be there.
    bytes: Option<[u8; BYTES]>,
}

impl CodeBytes {
    /// Those of this function. A system call, and sometimes a look for a sandbox.
    pub(crate) fn at(function: *const ()) -> Self {
        let address = function.addr() as u64;
        Self {
            address,
            bytes: read(address),
        }
    }

    /// Whether they are there; so it is taken to be where nothing can be read. The same calls.
    pub(crate) fn are_there(&self) -> bool {
        self.bytes
            .is_none_or(|bytes| read(self.address) == Some(bytes))
    }
}

fn read(address: u64) -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    let in_page = PAGE_BYTES - address as usize % PAGE_BYTES;
    // So that it is read in the way that nobody is killed for.
    follow_sandbox_now();
    read_own_memory(address, &mut bytes[..BYTES.min(in_page)]).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_where_it_was_and_another_or_none_is_not() {
        let own = CodeBytes::at(CodeBytes::are_there as *const ());
        assert!(own.bytes.is_some() && own.are_there());
        let elsewhere = CodeBytes {
            address: (CodeBytes::at as *const ()).addr() as u64,
            ..own
        };
        assert!(!elsewhere.are_there());
        assert!(
            !CodeBytes {
                address: 16,
                ..elsewhere
            }
            .are_there()
        );
        assert!(
            CodeBytes {
                address: 16,
                bytes: None
            }
            .are_there()
        );
        let at_the_end = (own.address | (PAGE_BYTES as u64 - 1)) - 7;
        let bytes = CodeBytes::at(at_the_end as *const ())
            .bytes
            .expect("it can be read");
        assert!(
            bytes[8..].iter().all(|byte| *byte == 0),
            "no more than its page has"
        );
    }
}
