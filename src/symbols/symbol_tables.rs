//! Names from the tables in a module that list its symbols and relocations: public names of
//! functions, names of PLT entries, and the functions of a module without a file.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ops::Range;

use object::elf::{FileHeader64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT};
use object::read::elf::ElfFile;
use object::{
    Architecture, NativeEndian, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable,
    RelocationFlags, RelocationTarget, SymbolKind, SymbolMap, SymbolMapName, SymbolScope,
};

use crate::symbols::demangle::{demangled, without_default_version};
use crate::symbols::module_files::ObjectFile;
use crate::symbols::names::{AddressName, FrameName, SymbolPlace};
use crate::unwind::LoadedModule;
use crate::util::SharedSort;

/// The public names of a file's functions whose symbol has an internal name, by address in the
/// file: `read` for `__GI___libc_read`. `None` for a function without a public name.
pub(super) struct PublicNames<'a>(HashMap<u64, Option<&'a str>>);

impl<'a> PublicNames<'a> {
    /// Reads the symbols by which other programs call the functions. A separate debug file has them
    /// in its symbol table, because its dynamic symbols have no content.
    pub(super) fn of(object: &ObjectFile<'a>, symbols: &SymbolMap<SymbolMapName<'a>>) -> Self {
        let internal = symbols.symbols().iter();
        let internal = internal.filter(|symbol| is_reserved(symbol.name()));
        let mut names: HashMap<u64, Option<&'a str>> =
            internal.map(|symbol| (symbol.address(), None)).collect();
        for symbol in object.dynamic_symbols().chain(object.symbols()) {
            let Some(known) = names.get_mut(&symbol.address()) else {
                continue;
            };
            let is_public = symbol.is_definition()
                && symbol.kind() == SymbolKind::Text
                && symbol.scope() == SymbolScope::Dynamic;
            let Some(name) = symbol.name().ok().filter(|_| is_public) else {
                continue;
            };
            let name = without_default_version(name);
            if name.is_empty() || name.starts_with('_') {
                continue;
            }
            // The choice must not depend on the order of the table.
            *known = Some(known.map_or(name, |known| known.min(name)));
        }
        Self(names)
    }

    /// Returns the public name of a symbol with an internal name.
    pub(super) fn instead_of(&self, symbol: &SymbolMapName<'_>) -> Option<&'a str> {
        self.0.get(&symbol.address()).copied().flatten()
    }
}

/// Returns whether the C standard reserves a name for the compiler and the C library.
pub(super) fn is_reserved(name: &str) -> bool {
    name.starts_with("__")
}

/// Makes one frame of a C library function that the debug information shows as inlined into itself.
/// Compilers split a function into a short part and the rest, and inline the short part into callers,
/// of which the function's other names are some.
pub(super) fn merge_function_inlined_into_itself(names: &mut Vec<FrameName>) {
    // The prefix by which glibc names a function for its own calls.
    let without_prefix = |name: &FrameName| {
        let name = name.function.as_str();
        name.strip_prefix("__GI_").unwrap_or(name).to_owned()
    };
    if let [.., inner, outermost] = names.as_slice()
        && is_reserved(&outermost.function)
        && without_prefix(inner) == without_prefix(outermost)
    {
        // The inner one has the line that was running.
        names.pop();
    }
}

/// The sections with entries: for calls that the loader binds late, for calls in programs with
/// branch protection, and for calls that it binds early.
const SECTIONS: [&str; 3] = [".plt", ".plt.sec", ".plt.got"];
/// Size of an entry, in bytes.
const ENTRY_BYTES: u64 = 16;
/// Size of an entry in `.plt.got` without branch protection, in bytes.
const SHORT_ENTRY_BYTES: u64 = 8;
/// The instruction `endbr64`, with which an entry begins in a program with branch protection.
const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// The first bytes of a jump to the address in a slot. The distance of the slot from the next
/// instruction follows, in four bytes.
const JUMP: [u8; 2] = [0xff, 0x25];

/// The PLT entries of one file for x86_64. Other files have none here.
///
/// A PLT entry is a short piece of code through which a module calls a function of another one. No
/// symbol covers it. It jumps to the address in a slot of the global offset table. A relocation
/// says whose address the loader puts there.
pub(super) struct PltNames<'a> {
    file: &'a [u8],
    sections: Vec<PltSection<'a>>,
    /// The functions by the slots that hold their addresses; read when an address lies in an entry.
    functions: OnceCell<HashMap<u64, &'a str>>,
}

struct PltSection<'a> {
    name: &'static str,
    addresses: Range<u64>,
    code: &'a [u8],
    entry_bytes: u64,
}

impl<'a> PltNames<'a> {
    /// `object` is what `file` contains.
    pub(super) fn of(file: &'a [u8], object: &ObjectFile<'a>) -> Self {
        let names = match object.architecture() {
            Architecture::X86_64 => &SECTIONS[..],
            _ => &[],
        };
        let sections = names.iter().filter_map(|&name| {
            let section = object.section_by_name(name)?;
            // A separate debug file has the section without its content.
            let code = section.data().ok().filter(|code| !code.is_empty())?;
            let is_short = name == ".plt.got" && !code.starts_with(&ENDBR);
            Some(PltSection {
                name,
                addresses: section.address()..section.address().checked_add(code.len() as u64)?,
                code,
                entry_bytes: if is_short {
                    SHORT_ENTRY_BYTES
                } else {
                    ENTRY_BYTES
                },
            })
        });
        Self {
            file,
            sections: sections.collect(),
            functions: OnceCell::new(),
        }
    }

    /// Returns the name of the entry that contains an address of the file. An entry without a
    /// function, such as the first one, has the name of its section.
    pub(super) fn name_at(&self, address: u64) -> Option<AddressName> {
        let section = self
            .sections
            .iter()
            .find(|section| section.addresses.contains(&address))?;
        let offset = address - section.addresses.start;
        let offset = offset - offset % section.entry_bytes;
        let start = section.addresses.start + offset;
        let code = &section.code[offset as usize..];
        let code = &code[..code.len().min(section.entry_bytes as usize)];
        let functions = self.functions.get_or_init(|| functions_by_slot(self.file));
        let function = slots(start, code).find_map(|slot| functions.get(&slot));
        let name = match function {
            Some(function) => format!("{}@plt", demangled(function)),
            None => section.name.to_owned(),
        };
        Some(AddressName {
            functions: vec![FrameName::name_only(&name)],
            symbol: Some(SymbolPlace {
                start,
                size: section.entry_bytes,
            }),
        })
    }
}

/// Returns the slots that jumps in the code at this address refer to.
fn slots(start: u64, code: &[u8]) -> impl Iterator<Item = u64> {
    const JUMP_BYTES: usize = JUMP.len() + size_of::<i32>();
    let places = code.windows(JUMP_BYTES).enumerate();
    places.filter_map(move |(offset, bytes)| {
        let (&distance, end) = (
            bytes.strip_prefix(&JUMP)?.first_chunk()?,
            offset + JUMP_BYTES,
        );
        let distance = i64::from(i32::from_le_bytes(distance));
        Some(start.wrapping_add(end as u64).wrapping_add_signed(distance))
    })
}

/// Returns the functions of other modules by the slots into which the loader puts their addresses.
fn functions_by_slot(file: &[u8]) -> HashMap<u64, &str> {
    let functions = || {
        let object = ObjectFile::parse(file).ok()?;
        let symbols = object.dynamic_symbol_table()?;
        let relocations = object.dynamic_relocations()?;
        let functions = relocations.filter_map(|(slot, relocation)| {
            let RelocationTarget::Symbol(symbol) = relocation.target() else {
                return None;
            };
            let RelocationFlags::Elf { r_type } = relocation.flags() else {
                return None;
            };
            if !matches!(r_type, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT) {
                return None;
            }
            let name = symbols.symbol_by_index(symbol).ok()?.name().ok()?;
            Some((slot, without_default_version(name)))
        });
        Some(functions.filter(|(_, name)| !name.is_empty()).collect())
    };
    functions().unwrap_or_default()
}

/// Functions of modules without a file: sorted address ranges with names, from the dynamic symbol
/// table. The vDSO is such a module, in which a program that reads the clock spends time.
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
    use crate::platform::TestFolder;
    use crate::unwind::ModuleTable;

    #[test]
    #[cfg(target_env = "gnu")]
    fn functions_of_the_c_library_have_public_names() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("mappings");
        let path = maps
            .lines()
            .filter_map(|line| Some(&line[line.find('/')?..]))
            .find(|path| path.ends_with("/libc.so.6"))
            .expect("the C library");
        let bytes = std::fs::read(path).expect("the C library's file");
        let object = ObjectFile::parse(&*bytes).expect("an ELF file");
        let symbols = object.symbol_map();
        let names = PublicNames::of(&object, &symbols);
        for public in ["read", "write", "poll", "close"] {
            let address = object
                .dynamic_symbols()
                .find(|symbol| symbol.name() == Ok(public))
                .expect("a symbol")
                .address();
            let symbol = symbols.containing(address).expect("a symbol");
            let name = names.instead_of(symbol).unwrap_or(symbol.name());
            assert_eq!(without_default_version(name), public);
        }
    }

    #[test]
    fn only_reserved_names_are_merged_with_themselves() {
        let merged = |functions: &[&str]| -> Vec<String> {
            let names = functions.iter().map(|name| FrameName::name_only(name));
            let mut names: Vec<FrameName> = names.collect();
            merge_function_inlined_into_itself(&mut names);
            names.into_iter().map(|name| name.function).collect()
        };
        for same in ["__GI___libc_read", "__libc_read"] {
            assert_eq!(merged(&[same, "__libc_read"]), [same]);
            assert_eq!(merged(&["copy", same, "__libc_read"]), ["copy", same]);
        }
        for kept in [&["walk", "walk"][..], &["__a", "__b"], &["__a"], &[]] {
            assert_eq!(merged(kept), kept);
        }
    }

    /// Returns the names of a library's PLT entries.
    fn entries(library: &str, flags: &[&str]) -> Vec<String> {
        let folder = TestFolder::new(library);
        let header = folder.path().join("calls.h");
        let text = "#include <unistd.h>\n#include <stdlib.h>\n\
            int call(int x) { return (int)getpid() + abs(x) + (int)lseek(x, 1, 0); }\n\
            int (*kept)(void) = (int (*)(void))getppid;\n";
        std::fs::write(&header, text).expect("the header is written");
        let header = header.to_str().expect("UTF-8");
        let flags = [&["-include", header, "-fno-builtin"], flags].concat();
        let path = folder.compile(library, "function", &flags);
        let bytes = std::fs::read(path).expect("the library");
        let object = ObjectFile::parse(&*bytes).expect("an ELF file");
        let names = PltNames::of(&bytes, &object);
        let sections = names.sections.iter();
        let entries = sections.flat_map(|section| {
            let starts = section
                .addresses
                .clone()
                .step_by(section.entry_bytes as usize);
            starts.map(|start| (start, section.entry_bytes))
        });
        entries
            .map(|(start, bytes)| {
                let name = names.name_at(start).expect("an entry");
                assert_eq!(names.name_at(start + bytes - 1).as_ref(), Some(&name));
                let place = name.symbol.expect("a place");
                assert_eq!((place.start, place.size), (start, bytes));
                name.functions[0].function.clone()
            })
            .collect()
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn plt_entry_has_the_name_of_the_function_that_it_calls() {
        // The loader binds late, or early; the compiler protects branches, or does not.
        for binding in ["-Wl,-z,lazy", "-Wl,-z,now"] {
            for protection in ["-fcf-protection=none", "-fcf-protection=full"] {
                let names = entries("plt", &[binding, protection]);
                for function in ["getpid@plt", "lseek@plt"] {
                    let count = names.iter().filter(|name| *name == function).count();
                    assert_eq!(count, 1, "{function} in {names:?}, {binding} {protection}");
                }
                assert!(names.contains(&".plt".to_owned()), "{names:?}");
            }
        }
    }

    #[test]
    fn address_outside_of_the_sections_has_no_entry() {
        let bytes = std::fs::read("/proc/self/exe").expect("this program");
        let object = ObjectFile::parse(&*bytes).expect("an ELF file");
        let names = PltNames::of(&bytes, &object);
        assert_eq!(names.name_at(0), None);
        assert_eq!(names.name_at(u64::MAX), None);
        let ends = names.sections.iter().map(|section| section.addresses.end);
        if let Some(end) = ends.max() {
            assert_eq!(names.name_at(end), None);
        }
    }

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
