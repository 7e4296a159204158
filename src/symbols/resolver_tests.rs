use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use object::{Object, ObjectSection};

use super::*;
use crate::platform::{ModuleImage, TestFolder, TestLibrary};
use crate::symbols::module_files::ObjectFile;
use crate::types::CodeAddress;
use crate::unwind::ModuleTable;

#[inline(never)]
fn a_function_to_find() -> u64 {
    std::hint::black_box(7)
}

#[test]
fn own_function_resolves_to_name_and_file() {
    let mut table = ModuleTable::default();
    table.refresh();
    let modules = table.all();
    let address = CodeAddress::new(a_function_to_find as fn() -> u64 as usize as u64);
    let first = SampledAddress {
        address,
        is_return_address: false,
    };
    let nowhere = SampledAddress {
        address: CodeAddress::new(16),
        is_return_address: true,
    };
    let names = CodeAddressService::new(&modules, &NamedCode::default(), Symbolicate::Full)
        .resolve(vec![first, nowhere, first]);
    assert_eq!(names.len(), 1, "{names:?}");
    let name = names[&first].functions.last().expect("a name");
    assert!(name.function.ends_with("::a_function_to_find"), "{name:?}");
    assert!(
        name.file
            .as_ref()
            .is_some_and(|file| file.ends_with("resolver_tests.rs")),
        "{name:?}"
    );
    assert!(name.line.is_some());
}

#[test]
fn module_whose_file_cannot_be_opened_is_named_while_it_is_loaded() {
    let mut table = ModuleTable::default();
    table.refresh();
    let address = CodeAddress::new(a_function_to_find as fn() -> u64 as usize as u64);
    let asked = SampledAddress {
        address,
        is_return_address: false,
    };
    let name_with = |is_unloaded: bool, may_use_backtrace: bool| {
        let mut modules = table.all();
        for module in &mut modules {
            let mut image = ModuleImage::clone(&module.image);
            image.path = "/no/such/file".into();
            image.is_executable = false;
            module.image = Arc::new(image);
            module.unloaded = is_unloaded;
        }
        let generated = NamedCode::default();
        let service = CodeAddressService::new(&modules, &generated, Symbolicate::Full);
        service
            .may_fall_back
            .set(may_use_backtrace)
            .expect("not asked yet");
        service.resolve(vec![asked]).remove(&asked)
    };
    let names = name_with(false, true).expect("names");
    let name = names.functions.last().expect("a name");
    assert!(name.function.ends_with("::a_function_to_find"), "{name:?}");
    assert!(name.line.is_some(), "{name:?}");
    assert_eq!(name_with(true, true), None, "the module was unloaded");
    assert_eq!(name_with(false, false), None, "the crate may not be asked");
}

#[test]
fn mismatched_file_provides_no_names() {
    let mut table = ModuleTable::default();
    table.refresh();
    let address = CodeAddress::new(a_function_to_find as fn() -> u64 as usize as u64);
    let names_with = |change: &dyn Fn(&mut LoadedModule)| {
        let mut modules = table.all();
        modules.iter_mut().for_each(change);
        let asked = vec![SampledAddress {
            address,
            is_return_address: false,
        }];
        CodeAddressService::new(&modules, &NamedCode::default(), Symbolicate::Full)
            .resolve(asked)
            .len()
    };
    let with_id = |module: &mut LoadedModule, id: &[u8]| {
        module.image = {
            let mut image = ModuleImage::clone(&module.image);
            image.build_id = id.to_vec();
            Arc::new(image)
        };
    };
    assert_eq!(
        names_with(&|module| with_id(module, &[1; 20])),
        0,
        "another file's build id"
    );
    assert_eq!(
        names_with(&|module| with_id(module, &[])),
        1,
        "a loaded module matches its file"
    );
    let unloaded = |module: &mut LoadedModule| {
        with_id(module, &[]);
        module.unloaded = true;
    };
    assert_eq!(
        names_with(&unloaded),
        0,
        "an unloaded module may have had another file"
    );
}

/// Loads a library and returns the names of its function `enter`.
fn names_of_enter(path: &Path, symbolicate: Symbolicate) -> Vec<FrameName> {
    names_near_enter(path, 0, symbolicate)
}

/// Loads a library and returns the names at this distance from its function `enter`.
fn names_near_enter(path: &Path, distance: u64, symbolicate: Symbolicate) -> Vec<FrameName> {
    let library = TestLibrary::load(path);
    let mut table = ModuleTable::default();
    table.refresh();
    let modules = table.all();
    let asked = SampledAddress {
        address: CodeAddress::new(library.address().wrapping_add(distance)),
        is_return_address: false,
    };
    let generated = NamedCode::default();
    let service = CodeAddressService::new(&modules, &generated, symbolicate);
    let names = service.resolve(vec![asked]).remove(&asked);
    library.close();
    names.map(|names| names.functions).unwrap_or_default()
}

/// Returns the name of a function whose debug information is in a split file, which `change` may
/// change before.
fn name_in_split_library(folder: &str, change: impl FnOnce(&Path)) -> FrameName {
    let folder = TestFolder::new(folder);
    let path = folder.compile("split", "function", &["-g", "-gsplit-dwarf"]);
    let mut files = std::fs::read_dir(folder.path()).expect("files").flatten();
    let split = files.find(|file| file.path().extension().is_some_and(|end| end == "dwo"));
    change(&split.expect("the compiler splits it").path());
    let names = names_of_enter(&path, Symbolicate::Full);
    assert_eq!(names.len(), 1, "{names:?}");
    names.into_iter().next().expect("a name")
}

/// Returns the name of a function with the public name `enter` and internal ones. The source
/// defines it as `defined`; the others are its aliases.
fn name_of_two(defined: &str, alias: &str, flags: &[&str], symbolicate: Symbolicate) -> String {
    let folder = TestFolder::new("two-names");
    let header = folder.path().join("alias.h");
    // Further internal names, so that the public one is not the last in the symbol table.
    let aliases = (0..8).map(|number| format!("__enter_{number}"));
    let text: String = aliases
        .chain([alias.to_owned()])
        .map(|name| {
            format!("int f{name}(int) __asm__(\"{name}\") __attribute__((alias(\"{defined}\")));\n")
        })
        .collect();
    std::fs::write(&header, text).expect("the header is written");
    let header = header.to_str().expect("UTF-8");
    let define = format!("-Denter={defined}");
    let common = [define.as_str(), "-include", header];
    let path = folder.compile("two-names", "function", &[&common, flags].concat());
    let names = names_of_enter(&path, symbolicate);
    names.last().expect("a function").function.clone()
}

#[test]
fn function_with_an_internal_and_a_public_name_has_the_public_one() {
    for symbolicate in [Symbolicate::NamesOnly, Symbolicate::Full] {
        // With debug information, without it, and with only the dynamic symbols.
        for flags in [&["-g"][..], &[], &["-s"]] {
            for (defined, alias) in [("__enter", "enter"), ("enter", "__enter")] {
                let name = name_of_two(defined, alias, flags, symbolicate);
                assert_eq!(name, "enter", "{defined} {flags:?} {symbolicate:?}");
            }
        }
    }
}

#[test]
fn library_with_split_debug_information_has_names_and_lines() {
    let name = name_in_split_library("split", |_| ());
    assert_eq!(name.function, "enter");
    let file = name.file.expect("a file");
    assert!(file.ends_with("source.c") && name.line.is_some(), "{file}");
}

#[test]
fn split_debug_information_that_became_a_pipe_is_left_out() {
    let name = name_in_split_library("split-pipe", |path| {
        std::fs::remove_file(path).expect("removed");
        let made = Command::new("mkfifo").arg(path).status();
        assert!(made.expect("a pipe").success());
    });
    // From the symbol table.
    assert_eq!(name.function, "enter");
}

/// Tries code with variables in registers: then the package has lists of their places.
#[test]
fn library_with_a_package_of_debug_information_has_names_and_lines() {
    let folder = TestFolder::new("package");
    let flags = ["-g", "-gdwarf-4", "-gsplit-dwarf"];
    let path = folder.compile("package", "function", &flags);
    let package = format!("{}.dwp", path.display());
    let packed = Command::new("dwp")
        .arg("-o")
        .arg(&package)
        .arg("-e")
        .arg(&path)
        .status();
    let Ok(packed) = packed else {
        eprintln!("not checked: there is no `dwp`");
        return;
    };
    assert!(packed.success());
    for file in std::fs::read_dir(folder.path()).expect("files").flatten() {
        if file.path().extension().is_some_and(|end| end == "dwo") {
            std::fs::remove_file(file.path()).expect("removed");
        }
    }
    let names = names_of_enter(&path, Symbolicate::Full);
    let name = names.last().expect("a name");
    assert_eq!(name.function, "enter");
    assert!(name.line.is_some(), "{name:?}");
}

#[test]
fn compressed_debug_information_that_cannot_be_read_leaves_the_symbols() {
    let folder = TestFolder::new("compressed");
    let flags = ["-g", "-Wl,--compress-debug-sections=zlib"];
    let path = folder.compile("compressed", "function", &flags);
    let name = names_of_enter(&path, Symbolicate::Full)
        .pop()
        .expect("a name");
    assert_eq!(name.function, "enter");
    assert_eq!(name.line.is_some(), cfg!(feature = "gzip"), "{name:?}");
    let mut bytes = std::fs::read(&path).expect("the library");
    let object = ObjectFile::parse(&*bytes).expect("an ELF file");
    let section = object
        .section_by_name(".debug_info")
        .expect("debug information");
    let (offset, _) = section.file_range().expect("a place");
    // Makes the method of compression an unknown one.
    bytes[offset as usize..][..4].copy_from_slice(&99u32.to_ne_bytes());
    let path = path.with_extension("other.so");
    std::fs::write(&path, bytes).expect("written");
    let name = names_of_enter(&path, Symbolicate::Full)
        .pop()
        .expect("a name");
    assert_eq!((name.function.as_str(), name.line), ("enter", None));
}

/// How a stripped library and its separate file recognize each other.
#[derive(Clone, Copy, Debug)]
enum Link {
    BuildId,
    Checksum,
}

/// Renames a section of a file. Linkers leave out a section that has the name to begin with.
fn rename_section<const N: usize>(path: &Path, old: &[u8; N], new: &[u8; N]) {
    let mut bytes = std::fs::read(path).expect("the file");
    let at = bytes.windows(N).position(|window| window == old);
    let at = at.expect("the section");
    bytes[at..at + N].copy_from_slice(new);
    std::fs::write(path, bytes).expect("written");
}

/// Compiles a library with debug information, and the same library without it, which links to the
/// first one. Returns the name of its function `enter`. `move_debug_file` may move the first one.
fn name_with_debug_file(link: Link, move_debug_file: impl FnOnce(&Path)) -> FrameName {
    let folder = TestFolder::new("debug-link");
    let build_id = match link {
        Link::BuildId => "-Wl,--build-id=0x0123456789abcdef",
        Link::Checksum => "-Wl,--build-id=none",
    };
    let debug_file = folder.compile("whole", "function", &["-g", build_id]);
    // A file with a build id is not recognized by its checksum.
    let checksum = match link {
        Link::BuildId => 0,
        Link::Checksum => crc32fast::hash(&std::fs::read(&debug_file).expect("the file")),
    };
    let header = folder.path().join("link.h");
    let section = format!(
        "__asm__(\".pushsection .gnu_debuglinX\\n.asciz \\\"libwhole.so\\\"\\n\\
         .balign 4\\n.4byte {checksum}\\n.popsection\");\n"
    );
    std::fs::write(&header, section).expect("the header is written");
    let header = header.to_str().expect("UTF-8");
    let flags = ["-s", build_id, "-include", header];
    let stripped = folder.compile("stripped", "function", &flags);
    rename_section(&stripped, b".gnu_debuglinX", b".gnu_debuglink");
    move_debug_file(&debug_file);
    let names = names_of_enter(&stripped, Symbolicate::Full);
    names.into_iter().next().expect("a name")
}

#[test]
fn stripped_library_has_lines_from_the_file_that_it_links_to() {
    for link in [Link::BuildId, Link::Checksum] {
        let in_folder = |name: &'static str| {
            move |path: &Path| {
                let folder = path.parent().expect("a folder").join(name);
                std::fs::create_dir_all(&folder).expect("a folder");
                std::fs::rename(path, folder.join("libwhole.so")).expect("moved");
            }
        };
        for (place, is_found) in [("", true), (".debug", true), ("elsewhere", false)] {
            let name = match place {
                "" => name_with_debug_file(link, |_| ()),
                place => name_with_debug_file(link, in_folder(place)),
            };
            // Without the file, the name is from the dynamic symbols.
            assert_eq!(name.function, "enter", "{link:?} {place}");
            assert_eq!(name.line.is_some(), is_found, "{link:?} {place}");
        }
        let replaced = name_with_debug_file(link, |path| {
            let other = path.parent().expect("a folder").join("libstripped.so");
            std::fs::copy(other, path).expect("copied");
            let mut file = std::fs::OpenOptions::new()
                .append(true)
                .open(path)
                .expect("the file");
            std::io::Write::write_all(&mut file, b"changed").expect("written");
        });
        assert_eq!(
            replaced.line, None,
            "another file with the same name, {link:?}"
        );
    }
}

/// Makes `function` of a test library one that only the library itself calls. Returns the path of the
/// header that says so, the library's file, and how far the function is from `enter`.
fn library_with_hidden_function(folder: &TestFolder, flags: &[&str]) -> (String, PathBuf, u64) {
    use object::{Object, ObjectSymbol};

    let header = folder.path().join("hidden.h");
    std::fs::write(&header, HIDDEN).expect("the header is written");
    let header = header.to_str().expect("UTF-8").to_owned();
    let flags = [flags, &["-include", &header]].concat();
    let path = folder.compile("whole", "function", &flags);
    let bytes = std::fs::read(&path).expect("the library");
    let object = object::File::parse(&*bytes).expect("an ELF file");
    let address = |name: &str| {
        let mut symbols = object.symbols();
        let symbol = symbols.find(|symbol| symbol.name() == Ok(name));
        symbol.expect("a symbol").address()
    };
    let distance = address("function").wrapping_sub(address("enter"));
    (header, path, distance)
}

const HIDDEN: &str = "__attribute__((visibility(\"hidden\"), noinline)) int function(int);\n";

#[test]
fn function_whose_symbol_the_linker_left_out_is_named_by_the_debug_information() {
    let folder = TestFolder::new("discarded");
    let (header, whole, distance) = library_with_hidden_function(&folder, &["-g"]);
    let flags = ["-g", "-Wl,--discard-all", "-include", &header];
    let discarded = folder.compile("discarded", "function", &flags);
    for path in [whole, discarded] {
        for symbolicate in [Symbolicate::NamesOnly, Symbolicate::Full] {
            let names = names_near_enter(&path, distance, symbolicate);
            let name = names.first().map(|name| name.function.as_str());
            assert_eq!(name, Some("function"), "{path:?} {symbolicate:?}");
        }
    }
}

#[test]
#[cfg(feature = "mini_debug_info")]
fn stripped_library_has_names_from_the_symbols_in_it() {
    let folder = TestFolder::new("mini-debug-info");
    let (header, whole, distance) = library_with_hidden_function(&folder, &[]);
    let whole = std::fs::read(whole).expect("the library");
    let compressed = folder.path().join("symbols.xz");
    let compressed = compressed.to_str().expect("UTF-8");
    let section = format!(
        "{HIDDEN}__asm__(\".pushsection .gnu_debugdata\\n.incbin \\\"{compressed}\\\"\\n\\
         .popsection\");\n"
    );
    std::fs::write(&header, section).expect("the header is written");
    for (content, expected) in [(&whole[..], Some("function")), (b"no file", None)] {
        let options = lzma_rust2::XzOptions::with_preset(1);
        let file = std::fs::File::create(compressed).expect("created");
        let mut writer = lzma_rust2::XzWriter::new(file, options).expect("a writer");
        std::io::Write::write_all(&mut writer, content).expect("written");
        writer.finish().expect("finished");
        let path = folder.compile("stripped", "function", &["-s", "-include", &header]);
        let names = names_near_enter(&path, distance, Symbolicate::Full);
        let name = names.first().map(|name| name.function.as_str());
        assert_eq!(name, expected);
    }
}

#[test]
fn names_are_the_same_on_any_number_of_threads() {
    let mut table = ModuleTable::default();
    table.refresh();
    let modules = table.all();
    // Addresses in this program, the C library, and others.
    let images = modules.iter().map(|module| &module.image);
    let addresses = images.flat_map(|image| {
        let step = (image.range.end - image.range.start) / 100 + 1;
        image.range.clone().step_by(step as usize)
    });
    let asked: Vec<SampledAddress> = addresses
        .map(|address| SampledAddress {
            address: CodeAddress::new(address),
            is_return_address: true,
        })
        .collect();
    let generated = NamedCode::default();
    let names_on = |threads| {
        let service = CodeAddressService::new(&modules, &generated, Symbolicate::NamesOnly);
        service.on_threads(threads).resolve(asked.clone())
    };
    let alone = names_on(1);
    assert!(alone.len() > 10, "{alone:?}");
    for threads in [2, 8] {
        assert_eq!(names_on(threads), alone, "{threads}");
    }
    let open = OpenModules::start().expect("a thread");
    for round in 1..=2 {
        let service = CodeAddressService::new(&modules, &generated, Symbolicate::NamesOnly);
        let names = service.in_open_modules(Some(&open)).resolve(asked.clone());
        assert_eq!(names, alone, "{round}");
    }
}

#[test]
fn open_module_has_names_after_its_file_was_replaced() {
    let folder = TestFolder::new("kept-open");
    let flags = ["-g", "-Wl,--build-id"];
    let path = folder.compile("kept-open", "function", &flags);
    let library = TestLibrary::load(&path);
    let mut table = ModuleTable::default();
    table.refresh();
    let modules = table.all();
    let open = OpenModules::start().expect("a thread");
    let generated = NamedCode::default();
    let names_at = |distance: u64, open: Option<&OpenModules>| {
        let asked = SampledAddress {
            address: CodeAddress::new(library.address() + distance),
            is_return_address: false,
        };
        let service = CodeAddressService::new(&modules, &generated, Symbolicate::Full);
        let _ = service.may_fall_back.set(false);
        let names = service.in_open_modules(open).resolve(vec![asked]);
        let name = names.get(&asked)?.functions.last()?;
        Some((name.function.clone(), name.line?))
    };
    let enter = Some(("enter".to_owned(), 1));
    assert_eq!(names_at(0, Some(&open)), enter);
    std::fs::remove_file(&path).expect("removed");
    assert_eq!(names_at(1, None), None, "the file is missing");
    assert_eq!(names_at(1, Some(&open)), enter, "it is still open");
    folder.compile("kept-open", "another", &flags);
    assert_eq!(names_at(2, None), None, "another file is there");
    assert_eq!(names_at(2, Some(&open)), enter, "it is still open");
    library.close();
}

/// Compiles a library whose debug information has the name of `enter` in a supplementary file with
/// this build id, as the program `dwz` writes it. Returns the name of `enter`.
#[cfg(target_arch = "x86_64")]
fn name_with_supplement(build_id_of_supplement: &str) -> String {
    let folder = TestFolder::new("supplement");
    let header = folder.path().join("debug.h");
    let header_flag = header.to_str().expect("UTF-8");
    let build_id = format!("-Wl,--build-id=0x{build_id_of_supplement}");
    let write = |assembly: &str| {
        let lines = assembly
            .lines()
            .map(|line| format!("\"{}\\n\"\n", line.trim()));
        let text: String = lines.collect();
        std::fs::write(&header, format!("__asm__({text});\n")).expect("the header is written");
    };
    write(
        ".pushsection .debug_str
         .asciz \\\"name_in_supplement\\\"
         .popsection",
    );
    folder.compile("common", "function", &[&build_id, "-include", header_flag]);
    // A unit with one function, whose name has the form `DW_FORM_GNU_strp_alt` (0x1f21).
    write(
        ".pushsection .debug_abbrev
         .Labbreviations:
         .uleb128 1, 0x11
         .byte 1
         .uleb128 0x11, 0x01, 0x12, 0x07, 0, 0, 2, 0x2e
         .byte 0
         .uleb128 0x03, 0x1f21, 0x11, 0x01, 0x12, 0x07, 0, 0, 0
         .popsection
         .pushsection .debug_info
         .4byte .Lend - .Lbegin
         .Lbegin:
         .2byte 4
         .4byte .Labbreviations
         .byte 8
         .uleb128 1
         .8byte enter, 8
         .uleb128 2
         .4byte 0
         .8byte enter, 8
         .byte 0
         .Lend:
         .popsection
         .pushsection .gnu_debugaltlink
         .asciz \\\"libcommon.so\\\"
         .byte 0x01, 0x23, 0x45, 0x67
         .popsection",
    );
    let path = folder.compile("compressed", "function", &["-include", header_flag]);
    let names = names_of_enter(&path, Symbolicate::Full);
    names.into_iter().next().expect("a name").function
}

#[test]
#[cfg(target_arch = "x86_64")]
fn names_in_a_supplementary_file_are_found_by_its_build_id() {
    assert_eq!(name_with_supplement("01234567"), "name_in_supplement");
    // From the symbol table.
    assert_eq!(name_with_supplement("76543210"), "enter");
}
