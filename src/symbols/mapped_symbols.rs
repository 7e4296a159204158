//! Names from the dynamic symbol table of a module without a file: the vDSO, in which a program
//! that reads the clock spends time.

use object::elf::FileHeader64;
use object::read::elf::ElfFile;
use object::{NativeEndian, Object, ObjectSymbol};

use crate::unwind::LoadedModule;
use crate::util::SharedSort;

/// Functions of modules without a file: sorted address ranges with names.
#[derive(Debug, Default)]
pub(super) struct MappedSymbols {
    functions: Vec<(u64, u64, String)>,
}

impl MappedSymbols {
    pub(super) fn of(modules: &[LoadedModule]) -> Self {
        let mut functions = Vec::new();
        for module in modules {
            let Some(memory) = module.image.memory else {
                continue;
            };
            let Ok(elf) = ElfFile::<FileHeader64<NativeEndian>, _>::parse(memory) else {
                continue;
            };
            for symbol in elf
                .dynamic_symbols()
                .filter(|symbol| symbol.is_definition() && symbol.size() > 0)
            {
                if let Ok(name) = symbol.name() {
                    let start = module.image.bias.wrapping_add(symbol.address());
                    functions.push((start, start + symbol.size(), name.to_owned()));
                }
            }
        }
        // If a function has two names, the public one, without the prefix, comes first.
        functions.shared_sort_by_cached_key(|(start, end, name)| {
            (*start, *end, name.starts_with("__"), name.clone())
        });
        functions.dedup_by_key(|(start, ..)| *start);
        Self { functions }
    }

    pub(super) fn name_at(&self, address: u64) -> Option<&str> {
        let after = self
            .functions
            .partition_point(|(start, ..)| *start <= address);
        let (_, end, name) = self.functions.get(after.checked_sub(1)?)?;
        (address < *end).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::ModuleTable;

    #[test]
    fn vdso_clock_function_has_a_name() {
        let mut table = ModuleTable::default();
        table.refresh();
        let symbols = MappedSymbols::of(&table.all());
        let (start, end, name) = symbols
            .functions
            .iter()
            .find(|(.., name)| name.contains("clock_gettime"))
            .expect("the clock");
        assert_eq!(
            (symbols.name_at(*start), symbols.name_at(end - 1)),
            (Some(name.as_str()), Some(name.as_str()))
        );
        assert_eq!(symbols.name_at(0), None);
    }
}
