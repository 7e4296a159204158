//! Looks addresses up in the files of their modules.

use std::collections::HashMap;

use crate::base::{CodeAddress, ProgressLocation, ProgressLogger};
use crate::symbols::mapped_symbols::MappedSymbols;
use crate::symbols::module_symbols::ModuleSymbols;
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
        self.address
            .get()
            .saturating_sub(self.is_return_address.into())
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
        Self {
            modules,
            mapped: MappedSymbols::of(modules),
            generated,
        }
    }

    /// The names of these addresses; those without one are absent. Reads the debug information of every module that is
    /// asked for, one after another, some ms to seconds, and gives its memory back.
    pub(crate) fn resolve(&self, addresses: Vec<SampledAddress>) -> AddressNames {
        self.resolve_watched(addresses, &ProgressLogger::unwatched())
    }

    /// The same, telling how far it is.
    pub(crate) fn resolve_watched(
        &self,
        mut addresses: Vec<SampledAddress>,
        progress: &ProgressLogger,
    ) -> AddressNames {
        addresses.sort_unstable();
        addresses.dedup();
        let mut names = AddressNames::new();
        let mut open: Option<(usize, ModuleSymbols)> = None;
        let count = addresses.len();
        for address in progress.watch(addresses.into_iter(), count, ProgressLocation::Names) {
            let found = self.names_at(address.lookup_address(), &mut open);
            if !found.is_empty() {
                names.insert(address, found);
            }
        }
        names
    }

    fn names_at(&self, address: u64, open: &mut Option<(usize, ModuleSymbols)>) -> Vec<FrameName> {
        let alone = |name: &str| {
            vec![FrameName {
                function: name.to_owned(),
                file: None,
                line: None,
            }]
        };
        if let Some(code) = self.generated.find(address) {
            return alone(&code.name);
        }
        let after = self
            .modules
            .partition_point(|module| module.image.range.start <= address);
        let Some(index) = after.checked_sub(1) else {
            return Vec::new();
        };
        let module = &self.modules[index];
        if !module.image.range.contains(&address) {
            return Vec::new();
        }
        if let Some(name) = self.mapped.name_at(address) {
            return alone(name);
        }
        if open.as_ref().is_none_or(|(open, _)| *open != index) {
            *open = Some((index, ModuleSymbols::open(module)));
        }
        open.as_ref()
            .map(|(_, symbols)| symbols.names_at(address))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::platform::ModuleImage;
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
        let first = SampledAddress {
            address,
            is_return_address: false,
        };
        let nowhere = SampledAddress {
            address: CodeAddress::new(16),
            is_return_address: true,
        };
        let names = CodeAddressService::new(&modules, &CodeMap::default())
            .resolve(vec![first, nowhere, first]);
        assert_eq!(names.len(), 1, "{names:?}");
        let name = names[&first].last().expect("a name");
        assert!(name.function.ends_with("::a_function_to_find"), "{name:?}");
        assert!(
            name.file
                .as_ref()
                .is_some_and(|file| file.ends_with("resolver.rs")),
            "{name:?}"
        );
        assert!(name.line.is_some());
    }

    #[test]
    fn a_file_that_is_not_the_one_that_was_loaded_names_nothing() {
        let mut table = ModuleTable::default();
        table.refresh();
        let address = CodeAddress::new(a_function_to_find as fn() -> u64 as usize as u64);
        let names_with = |change: &dyn Fn(&mut LoadedModule)| {
            let mut modules = table.all();
            modules.iter_mut().for_each(change);
            let asked = vec![SampledAddress {
                address,
                is_return_address: false,
            }];
            CodeAddressService::new(&modules, &CodeMap::default())
                .resolve(asked)
                .len()
        };
        let with_id = |module: &mut LoadedModule, id: &[u8]| {
            module.image = {
                let mut image = ModuleImage::clone(&module.image);
                image.build_id = id.to_vec();
                Arc::new(image)
            };
        };
        assert_eq!(
            names_with(&|module| with_id(module, &[1; 20])),
            0,
            "another file's build id"
        );
        assert_eq!(
            names_with(&|module| with_id(module, &[])),
            1,
            "what is loaded is what its path says"
        );
        let unloaded = |module: &mut LoadedModule| {
            with_id(module, &[]);
            module.unloaded = true;
        };
        assert_eq!(
            names_with(&unloaded),
            0,
            "what was may have been another file"
        );
    }
}
