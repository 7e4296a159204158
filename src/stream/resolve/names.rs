//! Names of addresses and libraries: looks them up, formats locations as the viewer parses them, and
//! writes the profile's `libs`.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::json::JsonWriter;
use crate::platform::{on_own_descriptors, usable_processors};
use crate::stream::decode::{FrameKey, ProcessStreamingContext, ProfileSource};
use crate::stream::memory::check_memory;
use crate::symbols::{
    AddressName, AddressNames, CodeAddressService, FoundNames, OpenModules, SampledAddress,
    UnreadFile,
};
use crate::types::{Features, NameOptions, ScriptDescription};
use crate::unwind::{LoadedModule, NamedCode, module_at};
use crate::util::{ProgressLocation, ProgressLogger};

/// The names of addresses in current modules, and in replaced modules by module number.
#[derive(Debug, Default)]
pub(crate) struct ProfileNames {
    now: AddressNames,
    replaced: HashMap<usize, AddressNames>,
    pub(crate) unread_files: Vec<UnreadFile>,
    /// Number of addresses without a name because the memory did not suffice to look them up.
    pub(crate) unnamed_for_memory: u64,
}

impl ProfileNames {
    /// Returns the names of an address in a current module.
    pub(crate) fn now(&self, address: SampledAddress) -> Option<&AddressName> {
        self.now.get(&address)
    }

    /// Returns the names of an address in the module with this number, whose place another module
    /// has taken.
    pub(crate) fn in_replaced(
        &self,
        module: usize,
        address: SampledAddress,
    ) -> Option<&AddressName> {
        self.replaced.get(&module)?.get(&address)
    }

    /// Looks up all addresses in the profile's stacks. If `open_modules` is given, its thread does it.
    pub(crate) fn look_up(
        source: &ProfileSource,
        process: &ProcessStreamingContext,
        options: NameOptions,
        open_modules: Option<&OpenModules>,
        progress: &ProgressLogger,
    ) -> Self {
        let mut addresses = Vec::new();
        let mut in_replaced: HashMap<usize, Vec<SampledAddress>> = HashMap::new();
        for frame in process.stacks.frames() {
            match frame {
                FrameKey::Native(address) | FrameKey::Waiting(address, _) => {
                    addresses.push(*address)
                }
                FrameKey::Replaced(module, address) => {
                    in_replaced.entry(*module).or_default().push(*address)
                }
                _ => {}
            }
        }
        let modules = source.modules.all_as_of_now();
        let symbolicate = options.symbolicate;
        let max_threads = options.max_threads.unwrap_or_else(default_threads);
        let service = CodeAddressService::new(&modules, &source.generated_code, symbolicate)
            .on_threads(max_threads)
            .in_open_modules(open_modules);
        let generated = &source.generated_code;
        let mut known = AddressNames::new();
        source.session.with_names(|cache| {
            cache.take_known(&modules, generated, symbolicate, &mut addresses, &mut known);
        });
        let count = addresses.len() + in_replaced.values().map(Vec::len).sum::<usize>();
        let progress = progress.sub_logger(0.0, 1.0, ProgressLocation::Names);
        let progress = Arc::new(progress.counter(count, ProgressLocation::Names));
        let mut now = service.resolve_with_progress(addresses.clone(), &progress);
        let incomplete = service.take_incomplete();
        let found = FoundNames {
            addresses: &addresses,
            names: &now,
            modules: &modules,
            generated,
            incomplete: &incomplete,
        };
        // Without memory for the new names, they are used, but not kept.
        if check_memory(found.bytes()).is_ok() {
            source.session.with_names(|cache| {
                cache.add(&found, symbolicate, options.max_cache_bytes);
            });
        }
        now.extend(known);
        let mut unread_files = service.take_unread_files();
        let mut unnamed_for_memory = service.unnamed_for_memory();
        let no_code = NamedCode::default();
        let replaced = in_replaced.into_iter().filter_map(|(number, addresses)| {
            let image = Arc::clone(source.modules.replaced(number)?);
            let modules = [LoadedModule {
                image,
                unloaded: true,
            }];
            let service = CodeAddressService::new(&modules, &no_code, symbolicate);
            let names = service.resolve_with_progress(addresses, &progress);
            unread_files.extend(service.take_unread_files());
            unnamed_for_memory += service.unnamed_for_memory();
            Some((number, names))
        });
        let replaced = replaced.collect();
        Self {
            now,
            replaced,
            unread_files,
            unnamed_for_memory,
        }
    }
}

/// Maximum number of threads that look up names, if the caller does not say it. Each needs memory
/// for a module, and few programs have more than four large ones.
const MAX_DEFAULT_THREADS: usize = 4;

/// Returns the number of threads that look up names, if the caller does not say it.
fn default_threads() -> usize {
    (on_own_descriptors(usable_processors) / 2).min(MAX_DEFAULT_THREADS)
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
            None => Some(&self.library_names[module_at(self.modules, address)?]),
        }
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

/// Returns the name by which the viewer shows a library. The kernel's suffix ` (deleted)` is
/// removed. Parentheses are replaced, because the viewer would take one for the end of the name.
pub(crate) fn library_name(path: &Path) -> String {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy())
        .unwrap_or_default();
    name.trim_end_matches(" (deleted)").replace(['(', ')'], "_")
}

/// Writes the modules, sorted by address and without overlaps, as the viewer's loader needs them.
pub(crate) fn write_libs(json: &mut JsonWriter<'_>, modules: &[LoadedModule]) {
    json.array(|json| {
        for LoadedModule { image, .. } in modules {
            json.object(|json| {
                let name = library_name(&image.path);
                // The path as the system reports it, which need not be UTF-8.
                let mut path = image.path.as_os_str().as_encoded_bytes();
                while let Some(before) = path.strip_suffix(b" (deleted)") {
                    path = before;
                }
                write_address(json.key("start"), image.range.start);
                write_address(json.key("end"), image.range.end);
                // Addresses are looked up relative to the first loaded byte.
                json.key("offset").unsigned(0);
                json.key("name").string(&name);
                json.key("path").text_bytes(path);
                json.key("debugName").string(&name);
                json.key("debugPath").text_bytes(path);
                json.key("breakpadId").string(&breakpad_id(&image.build_id));
                json.key("codeId")
                    .or_null(code_id(&image.build_id), |json, id| json.string(&id));
                json.key("arch").string(std::env::consts::ARCH);
            });
        }
    });
}

/// Writes an address, or -1 if it is above 2^53 - 1, as in Gecko: the viewer's numbers are exact
/// only up to there.
fn write_address(json: &mut JsonWriter<'_>, address: u64) {
    const MAX_EXACT: u64 = (1 << 53) - 1;
    match address {
        0..=MAX_EXACT => json.unsigned(address),
        _ => json.signed(-1),
    }
}

/// Returns the Breakpad id: the first 16 bytes of the build id as a GUID, whose first three fields
/// are little-endian, then the age, 0. It is empty for a module without a build id.
pub(crate) fn breakpad_id(build_id: &[u8]) -> String {
    if build_id.is_empty() {
        return String::new();
    }
    let mut guid = [0; 16];
    let length = build_id.len().min(16);
    guid[..length].copy_from_slice(&build_id[..length]);
    guid[0..4].reverse();
    guid[4..6].reverse();
    guid[6..8].reverse();
    guid.iter()
        .map(|byte| format!("{byte:02X}"))
        .chain(["0".to_owned()])
        .collect()
}

/// Returns the whole build id as hexadecimal digits.
pub(crate) fn code_id(build_id: &[u8]) -> Option<String> {
    (!build_id.is_empty()).then(|| build_id.iter().map(|byte| format!("{byte:02x}")).collect())
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

    #[test]
    fn addresses_of_more_than_53_bits_are_written_as_minus_one() {
        let mut text = Vec::new();
        let mut json = JsonWriter::new(&mut text);
        for address in [0, (1 << 53) - 1, 1 << 53, u64::MAX] {
            write_address(&mut json, address);
        }
        json.finish().expect("a vector never fails");
        assert_eq!(text, b"0,9007199254740991,-1,-1");
    }

    #[test]
    fn build_ids_are_formatted_for_symbol_servers() {
        let build_id: Vec<u8> = (1..=20).collect();
        assert_eq!(breakpad_id(&build_id), "0403020106050807090A0B0C0D0E0F100");
        assert_eq!(
            code_id(&build_id).as_deref(),
            Some("0102030405060708090a0b0c0d0e0f1011121314")
        );
        assert_eq!(breakpad_id(&[0xab]), "000000AB0000000000000000000000000");
        assert_eq!((breakpad_id(&[]), code_id(&[])), (String::new(), None));
    }
}
