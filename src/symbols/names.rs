//! Addresses to name, and their names.

use std::collections::HashMap;

use crate::types::CodeAddress;

/// A code address in a sampled stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct SampledAddress {
    pub(crate) address: CodeAddress,
    /// Whether the address is a return address, so that the call itself lies one byte before it.
    pub(crate) is_return_address: bool,
}

impl SampledAddress {
    /// Returns an address within the instruction that was running or calling.
    pub(crate) fn lookup_address(self) -> u64 {
        self.address
            .get()
            .saturating_sub(self.is_return_address.into())
    }
}

/// A function's name, and the file and line of the address if the debug information contains them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FrameName {
    pub(crate) function: String,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
}

/// The functions at each address, the innermost inlined one first.
pub(crate) type AddressNames = HashMap<SampledAddress, Vec<FrameName>>;
