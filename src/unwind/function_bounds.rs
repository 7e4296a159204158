//! Reads the bounds of functions from a module's symbol tables, and finds the words that the
//! dynamic linker fills in, and where the C library begins threads.
//!
//! musl has no call frame information, so none says that its start routines are the roots of
//! stacks. Such a routine passes the result of the thread's or the program's main function to
//! `pthread_exit` or `exit`. That call and their names identify these routines.

use std::ops::Range;

use object::read::elf::{ElfFile64, ElfSymbol64, SectionHeader, Sym};
use object::{NativeEndian, Object, ObjectSection, ObjectSymbol, ReadCache, SymbolKind};

use crate::platform::{ModuleImage, SharedFile, on_own_descriptors};
use crate::util::try_vec;

/// Maximum number of functions in a module; if there are more, none are used.
const MAX_FUNCTIONS: usize = 2_000_000;
/// The functions of musl that call the main function of a thread or of the program.
const START_ROUTINES: [&str; 4] = [
    "start",
    "start_c11",
    "libc_start_main_stage2",
    "__libc_start_main",
];
/// The functions to which musl passes the result of a main function. They do not return.
const EXITS: [&str; 3] = ["exit", "pthread_exit", "__pthread_exit"];
/// Functions that only the C library defines.
const OF_C_LIBRARY: [&str; 3] = ["__libc_start_main", "exit", "pthread_exit"];

/// The functions of a loaded module, by address.
#[derive(Debug, Default)]
pub(crate) struct FunctionBounds {
    /// Start and end (exclusive) of each function, sorted.
    functions: Vec<(u64, u64)>,
    /// The global offset tables, whose words only the dynamic linker writes.
    linked: Vec<Range<u64>>,
    /// The functions named in [`START_ROUTINES`].
    start_routines: Vec<Range<u64>>,
    /// The addresses of the functions named in [`EXITS`].
    exits: Vec<u64>,
    /// Whether the module is the C library, as a library of its own. Its start routines may be
    /// without names.
    is_c_library: bool,
}

impl FunctionBounds {
    /// Reads the symbol tables. The result is empty if the file is missing or was replaced since it
    /// was loaded, or if the tables do not fit into memory. Cost: some ms for a large module.
    pub(crate) fn read(module: &ModuleImage) -> Self {
        let module = module.without_unwind_sections();
        on_own_descriptors(move || read_bounds(&module)).unwrap_or_default()
    }

    /// Returns whether only the dynamic linker writes the word at `address`.
    pub(crate) fn is_linker_owned(&self, address: u64) -> bool {
        self.linked
            .iter()
            .any(|range| range.start <= address && address.saturating_add(8) <= range.end)
    }

    /// Returns whether a start routine of the C library may contain `address`.
    pub(crate) fn is_start_routine(&self, address: u64) -> bool {
        let mut named = self.start_routines.iter();
        self.is_c_library || named.any(|range| range.contains(&address))
    }

    /// Returns whether the function at `address` ends the thread or the process.
    pub(crate) fn is_exit(&self, address: u64) -> bool {
        self.exits.contains(&address)
    }

    /// Returns the start of the function that contains `address`.
    pub(crate) fn start_of(&self, address: u64) -> Option<u64> {
        let after = self
            .functions
            .partition_point(|&(start, _)| start <= address);
        let (start, end) = *self.functions.get(after.checked_sub(1)?)?;
        (address < end).then_some(start)
    }
}

fn read_bounds(module: &ModuleImage) -> Option<FunctionBounds> {
    let file = ReadCache::new(SharedFile::open_regular(&module.path).ok()?);
    let elf = ElfFile64::<NativeEndian, _>::parse(&file).ok()?;
    let build_id = elf.build_id().ok()?.unwrap_or_default();
    if build_id != module.build_id {
        return None;
    }
    let mut found = FunctionBounds::default();
    let mut of_c_library = [false; OF_C_LIBRARY.len()];
    let mut functions = Vec::new();
    let tables = [elf.elf_symbol_table(), elf.elf_dynamic_symbol_table()];
    let symbols = [elf.symbols(), elf.dynamic_symbols()];
    for (table, symbols) in tables.into_iter().zip(symbols) {
        // Read as a whole: `symbol.name()` would read the file, and allocate, for each name.
        let names = elf.elf_section_table().section(table.string_section());
        let names = names.and_then(|section| section.data(NativeEndian, &file));
        let names: &[u8] = names.unwrap_or_default();
        let is_function = |symbol: &ElfSymbol64<'_, '_, NativeEndian, _>| {
            symbol.kind() == SymbolKind::Text && symbol.is_definition() && symbol.size() > 0
        };
        for symbol in symbols.filter(is_function) {
            let start = module.bias.wrapping_add(symbol.address());
            let end = start.checked_add(symbol.size())?;
            functions.try_reserve(1).ok()?;
            functions.push((start, end));
            if functions.len() > MAX_FUNCTIONS {
                return None;
            }
            let name = name_at(names, symbol.elf_symbol().st_name(NativeEndian));
            if START_ROUTINES.contains(&name) {
                found.start_routines.push(start..end);
            }
            if EXITS.contains(&name) {
                found.exits.push(start);
            }
            for (is_defined, known) in of_c_library.iter_mut().zip(OF_C_LIBRARY) {
                *is_defined |= name == known;
            }
        }
    }
    let is_table = |name: object::Result<&str>| matches!(name, Ok(".got" | ".got.plt"));
    let tables = elf.sections().filter(|section| is_table(section.name()));
    let linked = tables.map(|section| {
        let start = module.bias.wrapping_add(section.address());
        start..start.saturating_add(section.size())
    });
    Some(FunctionBounds {
        functions: without_overlaps(functions)?,
        linked: linked.collect(),
        is_c_library: !module.is_executable && of_c_library.iter().all(|&defined| defined),
        ..found
    })
}

/// Returns the name that begins at `offset`; an empty text without a name there.
fn name_at(names: &[u8], offset: u32) -> &str {
    let name = names.get(offset as usize..).unwrap_or_default();
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    str::from_utf8(name).unwrap_or_default()
}

/// Sorts functions, given by their starts and ends. Leaves out those that overlap, because an
/// address in two functions is ambiguous. Returns `None` if the allocation fails.
fn without_overlaps(mut functions: Vec<(u64, u64)>) -> Option<Vec<(u64, u64)>> {
    functions.sort_unstable();
    functions.dedup();
    let mut separate = try_vec(functions.len())?;
    // The functions before the current one end here at the latest. The last of `separate` reaches
    // that far, if it is the one that overlaps the current one.
    let mut last_end = 0;
    for (start, end) in functions {
        if start >= last_end {
            separate.push((start, end));
        } else {
            separate.pop_if(|(_, other)| *other > start);
        }
        last_end = last_end.max(end);
    }
    Some(separate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::module_table::ModuleTable;

    #[test]
    fn without_overlaps_compares_all_functions() {
        let kept = |functions: &[(u64, u64)]| without_overlaps(functions.to_vec()).expect("memory");
        assert_eq!(kept(&[(8, 12), (0, 8), (0, 8)]), [(0, 8), (8, 12)]);
        assert_eq!(
            kept(&[(0, 100), (10, 20), (30, 40), (100, 120)]),
            [(100, 120)]
        );
        assert_eq!(kept(&[(0, 4), (4, 40), (10, 20), (30, 40)]), [(0, 4)]);
        assert_eq!(kept(&[(0, 8), (0, 4), (4, 8), (8, 9)]), [(8, 9)]);
    }

    #[test]
    fn read_finds_a_function_of_this_program_but_not_of_a_replaced_file() {
        let mut table = ModuleTable::default();
        table.refresh();
        let start_of = |address: u64| {
            let module = table.find(address).expect("a module");
            FunctionBounds::read(module).start_of(address)
        };
        let own = read_bounds as fn(&ModuleImage) -> Option<FunctionBounds> as usize as u64;
        assert_eq!(start_of(own + 3), Some(own));
        let listed = crate::platform::list_modules().expect("memory").1;
        let mut module = listed
            .into_iter()
            .find(|module| module.range.contains(&own))
            .expect("this program");
        module.build_id = b"a replaced file".to_vec();
        assert_eq!(FunctionBounds::read(&module).start_of(own), None);
    }
}
