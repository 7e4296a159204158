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

/// A function's name, and the file, line and column of the address if the debug information contains
/// them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FrameName {
    pub(crate) function: String,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
    pub(crate) column: Option<u32>,
}

impl FrameName {
    /// Returns a function whose file is unknown.
    pub(super) fn name_only(function: &str) -> Self {
        Self {
            function: function.to_owned(),
            file: None,
            line: None,
            column: None,
        }
    }
}

/// The place of a function in the process, as the symbol table has it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct SymbolPlace {
    /// Address in the process.
    pub(crate) start: u64,
    /// Size in bytes; 0 if the table does not say it.
    pub(crate) size: u64,
}

impl SymbolPlace {
    /// Returns the place that is `distance` bytes higher.
    pub(super) fn moved(self, distance: u64) -> Self {
        Self {
            start: self.start.wrapping_add(distance),
            size: self.size,
        }
    }
}

/// The functions at an address, and the place of the outermost one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct AddressName {
    /// The functions at the address, the innermost inlined one first; at least one.
    pub(crate) functions: Vec<FrameName>,
    /// The place of the function that the others were inlined into.
    pub(crate) symbol: Option<SymbolPlace>,
}

impl AddressName {
    /// Returns a function whose place is unknown.
    pub(super) fn without_place(functions: Vec<FrameName>) -> Self {
        Self {
            functions,
            symbol: None,
        }
    }
}

/// The name of each address. An address without a name is absent.
pub(crate) type AddressNames = HashMap<SampledAddress, AddressName>;
