//! Separate types for code addresses and stack addresses.

/// The address of an instruction in this process.
///
/// The innermost frame of a stack holds the instruction that was about to run. Every caller's frame
/// holds a *return address*: the instruction after the call. Look up a return address minus one
/// byte, which lies inside the call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CodeAddress(u64);

impl CodeAddress {
    /// Creates a code address from a number.
    pub const fn new(address: u64) -> Self {
        Self(address)
    }

    /// Returns the address as a number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl std::fmt::Debug for CodeAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// An address on a thread's stack. Stacks grow down, so the greater of two addresses is the older
/// one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct StackAddress(pub(crate) u64);
