//! Formats frame locations as the viewer parses them.

use std::path::Path;

use crate::stream::decode::ProfileSource;
use crate::types::{Features, ScriptDescription};
use crate::unwind::LoadedModule;

/// Returns the name by which the viewer shows a library. The kernel's suffix ` (deleted)` is
/// removed. Parentheses are replaced, because the viewer would take one for the end of the name.
pub(crate) fn library_name(path: &Path) -> String {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy())
        .unwrap_or_default();
    name.trim_end_matches(" (deleted)").replace(['(', ')'], "_")
}

/// Formats the locations of addresses, with a table of their libraries' names.
pub(crate) struct Locations<'a> {
    source: &'a ProfileSource,
    modules: &'a [LoadedModule],
    /// Whether code that was compiled from a script is shown as script frames.
    shows_scripts: bool,
    /// In the order of the modules.
    library_names: Vec<String>,
}

impl<'a> Locations<'a> {
    pub(crate) fn new(source: &'a ProfileSource, modules: &'a [LoadedModule]) -> Self {
        let library_names = modules.iter();
        let library_names = library_names.map(|module| library_name(&module.image.path));
        Self {
            source,
            modules,
            shows_scripts: source.session.settings.features.contains(Features::JS),
            library_names: library_names.collect(),
        }
    }

    /// Returns the script function with this number.
    pub(crate) fn script(&self, number: u32) -> Option<ScriptDescription<'a>> {
        self.source.script(number)
    }

    /// Returns the script function that the code at an address was compiled from.
    pub(crate) fn script_at(&self, address: u64) -> Option<ScriptDescription<'a>> {
        let code = self.source.generated_code.find(address);
        self.source
            .script(code.filter(|_| self.shows_scripts)?.script?)
    }

    /// Returns the name of the library that contains an address.
    pub(crate) fn library_of(&self, address: u64) -> Option<&str> {
        match self.source.generated_code.find(address) {
            Some(_) => Some("[jit]"),
            None => Some(&self.library_names[self.module_at(address)?]),
        }
    }

    /// Returns the index of the module that contains an address.
    pub(crate) fn module_at(&self, address: u64) -> Option<usize> {
        let next = self
            .modules
            .partition_point(|module| module.image.range.start <= address);
        let index = next.checked_sub(1)?;
        let is_inside = self.modules[index].image.range.contains(&address);
        is_inside.then_some(index)
    }

    /// Returns the name of a module whose place another module has taken, and its bias.
    pub(crate) fn replaced(&self, module: usize) -> Option<(String, u64)> {
        let image = self.source.modules.replaced(module)?;
        Some((library_name(&image.path), image.bias))
    }
}

/// Returns a label's text in a form that the viewer does not parse as an address, or as a function
/// in a file or library. For this, a no-break space is added or replaces a plain space: it looks
/// like a plain space, but the viewer does not parse it.
pub(crate) fn label_location(text: &str) -> String {
    if text.starts_with("0x") {
        return format!("\u{a0}{text}");
    }
    let looks_like_location = text.contains('(')
        && text.trim_end_matches(|c: char| c != ')' && c != ']').len() == text.len();
    if looks_like_location {
        text.replace(" (", "\u{a0}(")
    } else {
        text.to_owned()
    }
}

/// Returns the location of a script function: `name (file:line:column)`, with the position where
/// the function begins. Without a name it is `file:line:column`, which the viewer calls the root
/// scope of the file. As in [`label_location`], a no-break space keeps the viewer from parsing any
/// part differently.
pub(crate) fn script_location(function: &ScriptDescription<'_>) -> String {
    let &ScriptDescription {
        name,
        file,
        line,
        column,
        ..
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
    let ends_in_number = file
        .rsplit_once(':')
        .is_some_and(|(_, end)| end.parse::<u64>().is_ok());
    let position = match column {
        // Without a column, a number at the end of the file name would be parsed as the line.
        0 if !ends_in_number => format!("{file}:{line}"),
        _ => format!("{file}:{line}:{column}"),
    };
    if name.is_empty() {
        position
    } else {
        format!("{name} ({position})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_name_has_no_parentheses() {
        assert_eq!(library_name(Path::new("/lib/libc.so.6")), "libc.so.6");
        assert_eq!(library_name(Path::new("/tmp/libx.so (deleted)")), "libx.so");
        assert_eq!(
            library_name(Path::new("/tmp/lib (copy).so")),
            "lib _copy_.so"
        );
        assert_eq!(library_name(Path::new("[vdso]")), "[vdso]");
    }

    #[test]
    fn label_location_is_not_parsed_as_location() {
        assert_eq!(label_location("parse"), "parse");
        assert_eq!(label_location("0x1f"), "\u{a0}0x1f");
        assert_eq!(label_location("read (a.rs:3)"), "read\u{a0}(a.rs:3)");
        assert_eq!(label_location("f(x) and more"), "f(x) and more");
    }

    #[test]
    fn script_location_has_name_file_and_position() {
        let location = |name, file, line, column| {
            script_location(&ScriptDescription::new(name, file, line, column))
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
