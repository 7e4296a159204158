//! Addresses of code and of stack, kept apart.

/// The address of an instruction in this process.
///
/// In a stack, the innermost frame's is the instruction that was about to run; every caller's is a *return address*,
/// the instruction after the call, which belongs to the call one byte before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CodeAddress(u64);

impl CodeAddress {
    /// The address as a number.
    pub const fn new(address: u64) -> Self {
        Self(address)
    }

    /// The number again.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl std::fmt::Debug for CodeAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A place on a thread's stack. Stacks grow down: the greater of two is the older.
#[cfg(has_profiler)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct StackAddress(pub(crate) u64);
