//! Public names of functions that also have internal ones: `read` for `__GI___libc_read`.

use std::collections::HashMap;

use object::{Object, ObjectSymbol, SymbolKind, SymbolMapName, SymbolScope};

use crate::symbols::demangle::without_default_version;

/// The public names of a file's functions, by address in the file.
pub(super) struct PublicNames<'a>(HashMap<u64, &'a str>);

impl<'a> PublicNames<'a> {
    /// Reads the symbols by which other programs call the functions. A separate debug file has them
    /// in its symbol table, because its dynamic symbols have no content.
    pub(super) fn of(object: &object::File<'a>) -> Self {
        let mut names: HashMap<u64, &'a str> = HashMap::new();
        for symbol in object.dynamic_symbols().chain(object.symbols()) {
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
            let known = names.entry(symbol.address()).or_insert(name);
            // The choice must not depend on the order of the table.
            *known = (*known).min(name);
        }
        Self(names)
    }

    /// Returns the public name of a symbol with an internal name.
    pub(super) fn instead_of(&self, symbol: &SymbolMapName<'_>) -> Option<&'a str> {
        is_reserved(symbol.name())
            .then(|| self.0.get(&symbol.address()).copied())
            .flatten()
    }
}

/// Returns a name without the prefix by which glibc names a function for its own calls.
pub(super) fn without_hidden_prefix(name: &str) -> &str {
    name.strip_prefix("__GI_").unwrap_or(name)
}

/// Returns whether the C standard reserves a name for the compiler and the C library.
pub(super) fn is_reserved(name: &str) -> bool {
    name.starts_with("__")
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn internal_names_of_the_c_library_have_public_ones() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("mappings");
        let path = maps
            .lines()
            .filter_map(|line| Some(&line[line.find('/')?..]))
            .find(|path| path.ends_with("/libc.so.6"))
            .expect("the C library");
        let bytes = std::fs::read(path).expect("the C library's file");
        let object = object::File::parse(&*bytes).expect("an ELF file");
        let names = PublicNames::of(&object);
        for (internal, public) in [("__read", "read"), ("__poll", "poll")] {
            let symbol = object
                .dynamic_symbols()
                .find(|symbol| symbol.name() == Ok(internal))
                .expect("a symbol");
            let symbol = SymbolMapName::new(symbol.address(), symbol.size(), internal);
            assert_eq!(names.instead_of(&symbol), Some(public));
        }
        let without = SymbolMapName::new(1, 1, "__nowhere");
        assert_eq!(names.instead_of(&without), None);
    }
}
