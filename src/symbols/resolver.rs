//! Looks addresses up with `backtrace`.

use std::collections::HashMap;

use crate::base::CodeAddress;
use crate::symbols::demangle::demangled;
use crate::symbols::mapped_symbols::MappedSymbols;
use crate::unwind::{CodeMap, LoadedModule};

/// An address as it stands in a stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct SampledAddress {
    pub(crate) address: CodeAddress,
    /// Whether it is where a call returns to, so that the call itself is one byte before.
    pub(crate) is_return_address: bool,
}

impl SampledAddress {
    /// An address within the instruction that was running or calling.
    pub(crate) fn lookup_address(self) -> u64 {
        self.address.get() - u64::from(self.is_return_address)
    }
}

/// A function's name, and where in it the address is, if the debug information tells.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FrameName {
    pub(crate) function: String,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
}

/// What each address stands for: the functions there, innermost inlined one first.
pub(crate) type AddressNames = HashMap<SampledAddress, Vec<FrameName>>;

/// Names addresses of this process.
#[doc(alias = "ProfilerCodeAddressService")]
pub(crate) struct CodeAddressService<'a> {
    /// Sorted by address.
    modules: &'a [LoadedModule],
    mapped: MappedSymbols,
    generated: &'a CodeMap,
}

impl<'a> CodeAddressService<'a> {
    pub(crate) fn new(modules: &'a [LoadedModule], generated: &'a CodeMap) -> Self {
        Self { modules, mapped: MappedSymbols::of(modules), generated }
    }

    /// The names of these addresses; those without one are absent. Reads the debug information of every module that is
    /// asked for, some ms to seconds, and gives its memory back at the end.
    pub(crate) fn resolve(&self, mut addresses: Vec<SampledAddress>) -> AddressNames {
        addresses.sort_unstable();
        addresses.dedup();
        // It keeps the list of modules from its first use; there may be new ones.
        backtrace::clear_symbol_cache();
        let names = addresses
            .into_iter()
            .map(|address| (address, self.names_at(address.lookup_address())))
            .filter(|(_, names)| !names.is_empty())
            .collect();
        backtrace::clear_symbol_cache();
        names
    }

    fn names_at(&self, address: u64) -> Vec<FrameName> {
        let alone = |name: &str| vec![FrameName { function: name.to_owned(), file: None, line: None }];
        if let Some(code) = self.generated.find(address) {
            return alone(&code.name);
        }
        if !self.is_loaded(address) {
            return Vec::new();
        }
        self.mapped.name_at(address).map_or_else(|| names_in_files(address), alone)
    }

    fn is_loaded(&self, address: u64) -> bool {
        let after = self.modules.partition_point(|module| module.image.range.start <= address);
        after.checked_sub(1).is_some_and(|index| {
            let module = &self.modules[index];
            !module.unloaded && module.image.range.contains(&address)
        })
    }
}

fn names_in_files(address: u64) -> Vec<FrameName> {
    let mut names = Vec::new();
    // `resolve` takes a return address, and looks one byte before it.
    backtrace::resolve((address + 1) as *mut _, |symbol| {
        if let Some(name) = symbol.name() {
            names.push(FrameName {
                function: demangled(&name),
                file: symbol.filename().map(|file| file.display().to_string()),
                line: symbol.lineno(),
            });
        }
    });
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::ModuleTable;

    #[inline(never)]
    fn a_function_to_find() -> u64 {
        std::hint::black_box(7)
    }

    #[test]
    fn a_function_of_this_program_has_its_name_and_file() {
        let mut table = ModuleTable::default();
        table.refresh();
        let modules = table.all();
        let address = CodeAddress::new(a_function_to_find as fn() -> u64 as usize as u64);
        let first = SampledAddress { address, is_return_address: false };
        let nowhere = SampledAddress { address: CodeAddress::new(16), is_return_address: true };
        let names =
            CodeAddressService::new(&modules, &CodeMap::default()).resolve(vec![first, nowhere, first]);
        assert_eq!(names.len(), 1, "{names:?}");
        let name = names[&first].last().expect("a name");
        assert!(name.function.ends_with("::a_function_to_find"), "{name:?}");
        assert!(name.file.as_ref().is_some_and(|file| file.ends_with("resolver.rs")), "{name:?}");
        assert!(name.line.is_some());
    }

    #[test]
    fn addresses_of_a_module_that_is_gone_are_not_looked_up() {
        let mut table = ModuleTable::default();
        table.refresh();
        let mut modules = table.all();
        modules.iter_mut().for_each(|module| module.unloaded = true);
        let address = CodeAddress::new(a_function_to_find as fn() -> u64 as usize as u64);
        let asked = vec![SampledAddress { address, is_return_address: false }];
        assert!(CodeAddressService::new(&modules, &CodeMap::default()).resolve(asked).is_empty());
    }
}
