//! The source files that the debug information of a module names.

use std::collections::HashSet;
use std::path::Path;

use gimli::{AttributeValue, Dwarf, Unit, UnitRef};

use crate::platform::FileMapping;
use crate::symbols::debug_information::{ParsedFile, Reader};
use crate::symbols::module_files::{
    FileContent, SymbolFile, build_id_of, find_debug_file, find_supplementary_file, has_memory_for,
    hex_digits,
};

/// Returns the paths of the sources of a module, as the names of its functions have them. `build_id`
/// is in hexadecimal digits. Returns `None` if the file is missing or has another build id. Opens
/// files, and parses the headers of all line tables: some 100 ms for a large program.
pub(crate) fn source_paths(module: &Path, build_id: &str) -> Option<HashSet<String>> {
    let own = FileMapping::open(module).ok()?;
    let own_id = build_id_of(&own)?.to_vec();
    if !hex_digits(&own_id).eq_ignore_ascii_case(build_id) {
        return None;
    }
    let debug = find_debug_file(module, &own_id, Some(&own));
    let files = debug.into_iter().chain([(own, module.to_owned())]);
    let mut paths = HashSet::new();
    for (main, path) in files.filter(|(file, _)| has_memory_for(file)) {
        let supplementary = find_supplementary_file(&main, &path);
        let file = SymbolFile {
            main: FileContent::Mapped(main),
            package: None,
            supplementary: supplementary.filter(|file| has_memory_for(file)),
        };
        if let Some(parsed) = ParsedFile::parse(&file) {
            add_paths(&parsed.dwarf(), &mut paths);
        }
    }
    Some(paths)
}

/// Adds the files of all line tables. Units that are malformed have none.
fn add_paths(dwarf: &Dwarf<Reader<'_>>, paths: &mut HashSet<String>) {
    let mut headers = dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        let Ok(unit) = Unit::new(dwarf, header) else {
            continue;
        };
        let unit = UnitRef::new(dwarf, &unit);
        let Some(lines) = &unit.line_program else {
            continue;
        };
        let lines = lines.header();
        for file in lines.file_names() {
            let folder = file
                .directory(lines)
                .filter(|_| file.directory_index() != 0);
            paths.extend(path_of(unit, folder, file.path_name()));
        }
    }
}

/// Returns the path of a file, in the folder of its unit unless it is absolute.
fn path_of<'a>(
    unit: UnitRef<'_, Reader<'a>>,
    folder: Option<AttributeValue<Reader<'a>>>,
    name: AttributeValue<Reader<'a>>,
) -> Option<String> {
    let text = |value| Some(unit.attr_string(value).ok()?.to_string_lossy().into_owned());
    let mut path = unit
        .comp_dir
        .map(|folder| folder.to_string_lossy().into_owned())
        .unwrap_or_default();
    for part in folder.into_iter().chain([name]) {
        let part = text(part)?;
        if part.starts_with('/') {
            path = part;
        } else {
            if !path.is_empty() && !path.ends_with('/') {
                path.push('/');
            }
            path.push_str(&part);
        }
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::platform::TestFolder;

    fn build_id(path: &Path) -> String {
        let bytes = std::fs::read(path).expect("the file");
        let id = build_id_of(&bytes).expect("a build id");
        id.iter().map(|byte| format!("{byte:02X}")).collect()
    }

    #[test]
    fn sources_of_this_program_have_the_paths_of_its_functions() {
        let path: PathBuf = std::env::current_exe().expect("this program");
        let paths = source_paths(&path, &build_id(&path)).expect("the same file");
        let own = paths
            .iter()
            .find(|path| path.ends_with("src/symbols/source_files.rs"));
        assert!(own.is_some_and(|path| path.starts_with('/')), "{own:?}");
        assert_eq!(source_paths(&path, "0123"), None, "another file");
        assert_eq!(source_paths(Path::new("/no/such/file"), "0123"), None);
    }

    #[test]
    fn library_names_its_source_and_no_other_file() {
        let folder = TestFolder::new("source-files");
        let build_id_flag = "-Wl,--build-id=0x0123456789abcdef";
        let path = folder.compile("sources", "function", &["-g", build_id_flag]);
        let source = folder.path().join("source.c");
        let source = source.to_str().expect("UTF-8");
        let paths = source_paths(&path, "0123456789abcdef").expect("the same file");
        assert!(paths.contains(source), "{paths:?}");
        assert!(!paths.contains("/etc/hostname"));
    }
}
