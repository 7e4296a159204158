//! Names from earlier profiles of a session, by module.
//!
//! A module is known by its build id, so a name stays right when the module is loaded elsewhere, or
//! when its file is replaced on disk.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::symbols::names::{AddressName, AddressNames, FrameName, SampledAddress};
use crate::types::Symbolicate;
use crate::unwind::{LoadedModule, NamedCode, module_at};

/// Names of addresses in modules with a build id, within a budget of memory. Also knows the addresses
/// that have no name, so that they are not looked up again.
#[derive(Debug, Default)]
pub(crate) struct NameCache {
    modules: HashMap<Vec<u8>, HashMap<Key, Entry>>,
    /// Memory of the entries, about.
    bytes: usize,
    /// The number of the current profile.
    profile: u64,
}

/// An address within a module, and how much was looked up of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Key {
    relative: u64,
    symbolicate: Symbolicate,
}

#[derive(Debug)]
struct Entry {
    /// Without functions if the address has no name. The place of the symbol is relative to the
    /// module.
    name: AddressName,
    /// The last profile that needed the name.
    used_in: u64,
}

/// What was found for addresses.
#[derive(Debug)]
pub(crate) struct FoundNames<'a> {
    /// The addresses that were looked up.
    pub(crate) addresses: &'a [SampledAddress],
    /// The names of the addresses that have one.
    pub(crate) names: &'a AddressNames,
    /// Sorted by address.
    pub(crate) modules: &'a [LoadedModule],
    pub(crate) generated: &'a NamedCode,
    /// Paths of the modules whose files could not all be read, so that a later profile may find more
    /// names.
    pub(crate) incomplete: &'a [PathBuf],
}

impl FoundNames<'_> {
    /// Returns what was found for an address. The result has no functions if it has no name.
    fn name_of(&self, address: SampledAddress) -> &AddressName {
        static UNNAMED: AddressName = AddressName {
            functions: Vec::new(),
            symbol: None,
        };
        self.names.get(&address).unwrap_or(&UNNAMED)
    }

    /// Returns the memory that a cache of all this would take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let names = self.addresses.iter().map(|&address| self.name_of(address));
        names.map(entry_bytes).sum()
    }
}

/// Memory of an entry without its texts, with its share of the table's free slots, in bytes.
const ENTRY_BYTES: usize = 2 * (size_of::<Key>() + size_of::<Entry>());

/// Returns the memory of an entry with this name, in bytes.
fn entry_bytes(name: &AddressName) -> usize {
    let of_function = |name: &FrameName| {
        let file_bytes = name.file.as_ref().map_or(0, String::len);
        size_of::<FrameName>() + name.function.len() + file_bytes
    };
    ENTRY_BYTES + name.functions.iter().map(of_function).sum::<usize>()
}

/// Returns the module with a build id that contains an address. Generated code belongs to no module,
/// even if it lies in the memory of one.
fn module_of<'a>(
    modules: &'a [LoadedModule],
    generated: &NamedCode,
    address: SampledAddress,
) -> Option<&'a LoadedModule> {
    let address = address.lookup_address();
    if generated.find(address).is_some() {
        return None;
    }
    let module = &modules[module_at(modules, address)?];
    (!module.image.build_id.is_empty()).then_some(module)
}

/// Returns the name of an address, with its symbol moved by `distance`.
fn moved(name: &AddressName, distance: u64) -> AddressName {
    let mut name = name.clone();
    name.symbol = name.symbol.map(|symbol| symbol.moved(distance));
    name
}

impl NameCache {
    /// Begins a profile: moves the addresses whose names are known from `addresses` to `names`, and
    /// removes the addresses that are known to have no name. `modules` are sorted by address.
    pub(crate) fn take_known(
        &mut self,
        modules: &[LoadedModule],
        generated: &NamedCode,
        symbolicate: Symbolicate,
        addresses: &mut Vec<SampledAddress>,
        names: &mut AddressNames,
    ) {
        self.profile += 1;
        addresses.retain(|&address| {
            let mut find = || {
                let image = &module_of(modules, generated, address)?.image;
                let key = Key {
                    relative: address.lookup_address() - image.range.start,
                    symbolicate,
                };
                let entry = self.modules.get_mut(&image.build_id)?.get_mut(&key)?;
                entry.used_in = self.profile;
                Some(moved(&entry.name, image.range.start))
            };
            let Some(name) = find() else { return true };
            if !name.functions.is_empty() {
                names.insert(address, name);
            }
            false
        });
    }

    /// Adds what was found for the addresses that were looked up, as far as the budget allows. Names
    /// that the current profile does not need make way for it.
    pub(crate) fn add(
        &mut self,
        found: &FoundNames<'_>,
        symbolicate: Symbolicate,
        max_bytes: usize,
    ) {
        if self.bytes.saturating_add(found.bytes()) > max_bytes {
            self.drop_unused();
        }
        for &address in found.addresses {
            let module = module_of(found.modules, found.generated, address);
            let Some(LoadedModule { image, .. }) = module else {
                continue;
            };
            if found.incomplete.contains(&image.path) {
                continue;
            }
            let name = found.name_of(address);
            let start = image.range.start;
            let entry = Entry {
                name: moved(name, 0u64.wrapping_sub(start)),
                used_in: self.profile,
            };
            let bytes = entry_bytes(name);
            if self.bytes.saturating_add(bytes) > max_bytes {
                return;
            }
            let key = Key {
                relative: address.lookup_address() - start,
                symbolicate,
            };
            let of_module = self.modules.entry(image.build_id.clone()).or_default();
            if of_module.insert(key, entry).is_none() {
                self.bytes += bytes;
            }
        }
    }

    /// Drops the names that the current profile did not need.
    fn drop_unused(&mut self) {
        self.modules.retain(|_, names| {
            names.retain(|_, entry| {
                let is_used = entry.used_in == self.profile;
                if !is_used {
                    self.bytes = self.bytes.saturating_sub(entry_bytes(&entry.name));
                }
                is_used
            });
            !names.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::platform::ModuleImage;
    use crate::symbols::names::SymbolPlace;
    use crate::types::CodeAddress;
    use crate::unwind::ModuleTable;

    /// Returns this program's module, moved to `start`.
    fn module_at(start: u64, build_id: &[u8]) -> [LoadedModule; 1] {
        let mut table = ModuleTable::default();
        table.refresh();
        let mut module = table.all().swap_remove(0);
        let mut image = ModuleImage::clone(&module.image);
        image.range = start..start + 0x1000;
        image.build_id = build_id.to_vec();
        module.image = Arc::new(image);
        [module]
    }

    fn at(address: u64) -> SampledAddress {
        SampledAddress {
            address: CodeAddress::new(address),
            is_return_address: false,
        }
    }

    fn named(function: &str, start: u64) -> AddressName {
        AddressName {
            functions: vec![FrameName::name_only(function)],
            symbol: Some(SymbolPlace { start, size: 16 }),
        }
    }

    fn add(
        cache: &mut NameCache,
        modules: &[LoadedModule],
        names: &AddressNames,
        max_bytes: usize,
    ) {
        let addresses: Vec<SampledAddress> = names.keys().copied().collect();
        let found = FoundNames {
            addresses: &addresses,
            names,
            modules,
            generated: &NamedCode::default(),
            incomplete: &[],
        };
        cache.add(&found, Symbolicate::Full, max_bytes);
    }

    fn known(cache: &mut NameCache, modules: &[LoadedModule], address: u64) -> AddressNames {
        let (mut addresses, mut names) = (vec![at(address)], AddressNames::new());
        cache.take_known(
            modules,
            &NamedCode::default(),
            Symbolicate::Full,
            &mut addresses,
            &mut names,
        );
        assert_eq!(addresses.len() + names.len(), 1);
        names
    }

    #[test]
    fn name_follows_its_module_to_another_address() {
        let mut cache = NameCache::default();
        let modules = module_at(0x10_000, &[7; 20]);
        let names = AddressNames::from([(at(0x10_020), named("work", 0x10_010))]);
        add(&mut cache, &modules, &names, 1 << 20);
        let elsewhere = module_at(0x50_000, &[7; 20]);
        let found = known(&mut cache, &elsewhere, 0x50_020);
        assert_eq!(found[&at(0x50_020)], named("work", 0x50_010));
        let other_file = module_at(0x50_000, &[8; 20]);
        assert!(known(&mut cache, &other_file, 0x50_020).is_empty());
        let without_id = module_at(0x50_000, &[]);
        assert!(known(&mut cache, &without_id, 0x50_020).is_empty());
    }

    #[test]
    fn budget_is_kept_and_unused_names_make_way() {
        let mut cache = NameCache::default();
        let modules = module_at(0x10_000, &[7; 20]);
        let name = |address| AddressNames::from([(at(address), named("work", address))]);
        let one_bytes = entry_bytes(&named("work", 0));
        let max_bytes = 2 * one_bytes;
        for address in [0x10_010, 0x10_020] {
            add(&mut cache, &modules, &name(address), max_bytes);
        }
        assert_eq!(known(&mut cache, &modules, 0x10_020).len(), 1);
        add(&mut cache, &modules, &name(0x10_030), max_bytes);
        assert_eq!(cache.bytes, max_bytes);
        assert!(known(&mut cache, &modules, 0x10_010).is_empty());
        assert_eq!(known(&mut cache, &modules, 0x10_020).len(), 1);
        assert_eq!(known(&mut cache, &modules, 0x10_030).len(), 1);
        add(&mut cache, &modules, &name(0x10_040), 0);
        assert!(known(&mut cache, &modules, 0x10_040).is_empty());
    }

    #[test]
    fn address_without_a_name_is_not_looked_up_again() {
        let modules = module_at(0x10_000, &[7; 20]);
        let generated = NamedCode::default();
        let (with_name, without) = (at(0x10_020), at(0x10_040));
        let names = AddressNames::from([(with_name, named("work", 0x10_010))]);
        let unknown_after = |incomplete: &[PathBuf]| {
            let mut cache = NameCache::default();
            let found = FoundNames {
                addresses: &[with_name, without],
                names: &names,
                modules: &modules,
                generated: &generated,
                incomplete,
            };
            cache.add(&found, Symbolicate::Full, 1 << 20);
            let (mut asked, mut known) = (vec![with_name, without], AddressNames::new());
            cache.take_known(
                &modules,
                &generated,
                Symbolicate::Full,
                &mut asked,
                &mut known,
            );
            assert_eq!(known.contains_key(&with_name), incomplete.is_empty());
            assert!(!known.contains_key(&without), "it has no name");
            asked
        };
        assert_eq!(unknown_after(&[]), []);
        let path = modules[0].image.path.clone();
        assert_eq!(unknown_after(&[path]), [with_name, without]);
    }
}
