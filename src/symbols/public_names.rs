//! Public names of functions that also have internal ones: `read` for `__GI___libc_read`.

use std::collections::HashMap;

use object::{Object, ObjectSymbol, SymbolKind, SymbolMap, SymbolMapName, SymbolScope};

use crate::symbols::demangle::without_default_version;
use crate::symbols::names::FrameName;
use crate::symbols::object_file::ObjectFile;

/// The public names of a file's functions whose symbol has an internal name, by address in the file.
/// `None` for a function without a public name.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
