//! Frame locations, in the words that the viewer takes apart.

use std::collections::HashMap;
use std::path::Path;

use crate::base::ScriptDescription;
use crate::symbols::{FrameName, SampledAddress};
use crate::unwind::{CodeMap, LoadedModule, ModuleTable};

/// The name by which the viewer shows a library. A path that the system marks as deleted is the one it was; brackets
/// would end the name early.
pub(super) fn library_name(path: &Path) -> String {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy())
        .unwrap_or_default();
    name.trim_end_matches(" (deleted)").replace(['(', ')'], "_")
}

/// Makes location texts for addresses, with the names of their libraries at hand.
pub(super) struct Locations<'a> {
    modules: &'a [LoadedModule],
    table: &'a ModuleTable,
    generated: &'a CodeMap,
    library_names: HashMap<u64, String>,
}

impl<'a> Locations<'a> {
    pub(super) fn new(
        modules: &'a [LoadedModule],
        table: &'a ModuleTable,
        generated: &'a CodeMap,
    ) -> Self {
        let library_names = modules
            .iter()
            .map(|module| (module.image.range.start, library_name(&module.image.path)))
            .collect();
        Self {
            modules,
            table,
            generated,
            library_names,
        }
    }

    fn library_of(&self, address: u64) -> Option<&str> {
        if self.generated.find(address).is_some() {
            return Some("[jit]");
        }
        let after = self
            .modules
            .partition_point(|module| module.image.range.start <= address);
        let module = &self.modules[after.checked_sub(1)?];
        let inside = module.image.range.contains(&address);
        inside
            .then(|| {
                self.library_names
                    .get(&module.image.range.start)
                    .map(String::as_str)
            })
            .flatten()
    }

    /// A named function: `name (in library)`.
    pub(super) fn named(&self, address: SampledAddress, name: &FrameName) -> String {
        match self.library_of(address.lookup_address()) {
            Some(library) => format!("{} (in {library})", name.function),
            None => name.function.clone(),
        }
    }

    /// An address without a name. The viewer takes a caller's as a return address, which it is.
    pub(super) fn unnamed(&self, address: SampledAddress) -> String {
        format!("{:#x}", address.address.get())
    }

    /// A named function of a module whose place another took.
    pub(super) fn named_in_replaced(&self, module: usize, name: &FrameName) -> String {
        match self.table.replaced(module) {
            Some(module) => format!("{} (in {})", name.function, library_name(&module.path)),
            None => name.function.clone(),
        }
    }

    /// An address in such a module, without a name. As an address alone it would be taken for the other's.
    pub(super) fn unnamed_in_replaced(&self, module: usize, address: SampledAddress) -> String {
        let Some(module) = self.table.replaced(module) else {
            return self.unnamed(address);
        };
        let library = library_name(&module.path);
        format!(
            "{library}+{:#x} (in {library})",
            address.lookup_address().wrapping_sub(module.bias)
        )
    }
}

/// A label's text, changed where the viewer would take it for an address or a function in a file or library: a no-break
/// space looks the same and reads as nothing.
pub(super) fn label_location(text: &str) -> String {
    if text.starts_with("0x") {
        return format!("\u{a0}{text}");
    }
    let looks_like_a_place = text.contains('(')
        && text.trim_end_matches(|c: char| c != ')' && c != ']').len() == text.len();
    if looks_like_a_place {
        text.replace(" (", "\u{a0}(")
    } else {
        text.to_owned()
    }
}

/// A function of a script: `name (file:line:column)`, with where it begins; `file:line:column` for one without a name, which
/// the viewer calls the root scope of the file. What the viewer would take apart elsewhere gets a no-break space.
pub(super) fn script_location(function: &ScriptDescription<'_>) -> String {
    let &ScriptDescription {
        name,
        file,
        line,
        column,
    } = function;
    let on_one_line = |text: &str| text.replace(|c: char| c.is_control(), " ");
    let mut name = on_one_line(name).replace(" (", "\u{a0}(");
    if name.starts_with("0x") {
        name.insert(0, '\u{a0}');
    }
    let mut file = on_one_line(file).replace(" (", "\u{a0}(");
    if file.starts_with("in ") {
        file.replace_range(2..3, "\u{a0}");
    }
    if file.is_empty() {
        file.push_str("<script>");
    }
    let ends_in_a_number = file
        .rsplit_once(':')
        .is_some_and(|(_, end)| end.parse::<u64>().is_ok());
    let place = match column {
        // The number of the file's name would be taken for the line.
        0 if !ends_in_a_number => format!("{file}:{line}"),
        _ => format!("{file}:{line}:{column}"),
    };
    if name.is_empty() {
        place
    } else {
        format!("{name} ({place})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_librarys_name_has_no_brackets() {
        assert_eq!(library_name(Path::new("/lib/libc.so.6")), "libc.so.6");
        assert_eq!(library_name(Path::new("/tmp/libx.so (deleted)")), "libx.so");
        assert_eq!(
            library_name(Path::new("/tmp/lib (copy).so")),
            "lib _copy_.so"
        );
        assert_eq!(library_name(Path::new("[vdso]")), "[vdso]");
    }

    #[test]
    fn labels_are_not_taken_for_places() {
        assert_eq!(label_location("parse"), "parse");
        assert_eq!(label_location("0x1f"), "\u{a0}0x1f");
        assert_eq!(label_location("read (a.rs:3)"), "read\u{a0}(a.rs:3)");
        assert_eq!(label_location("f(x) and more"), "f(x) and more");
    }

    #[test]
    fn a_scripts_function_reads_as_one_with_its_file_and_place() {
        let location = |name, file, line, column| {
            script_location(&ScriptDescription {
                name,
                file,
                line,
                column,
            })
        };
        assert_eq!(location("f", "a/b.lua", 3, 7), "f (a/b.lua:3:7)");
        assert_eq!(location("f", "a/b.lua", 3, 0), "f (a/b.lua:3)");
        assert_eq!(location("", "b.lua", 1, 0), "b.lua:1");
        assert_eq!(location("f", "", 0, 0), "f (<script>:0)");
        assert_eq!(location("f", "eval:12", 3, 0), "f (eval:12:3:0)");
        assert_eq!(
            location("f (in libc)\n", "in (x)", 1, 2),
            "f\u{a0}(in libc)  (in\u{a0}(x):1:2)"
        );
        assert_eq!(location("0x1f", "a", 1, 0), "\u{a0}0x1f (a:1)");
    }
}
