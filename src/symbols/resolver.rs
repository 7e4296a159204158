//! Looks up addresses in the files of their modules.

use std::cell::{Cell, OnceCell, RefCell};
use std::iter;
use std::path::PathBuf;

use crate::platform::{ModuleImage, is_memory_available};
use crate::symbols::fallback::{free_backtrace_files, may_use_backtrace, names_by_backtrace};
use crate::symbols::mapped_symbols::MappedSymbols;
use crate::symbols::module_files::{ModuleFiles, UnreadFile};
use crate::symbols::module_symbols::ModuleSymbols;
use crate::symbols::names::{AddressName, AddressNames, FrameName, SampledAddress};
use crate::types::Symbolicate;
use crate::unwind::{CallFrames, LoadedModule, NamedCode};
use crate::util::{ProgressLocation, ProgressLogger};

/// Name of a signal trampoline without a symbol. The C library's is one, if its file is stripped.
const SIGNAL_TRAMPOLINE: &str = "signal trampoline";

/// Resolves addresses of this process to names.
#[doc(alias = "ProfilerCodeAddressService")]
pub(crate) struct CodeAddressService<'a> {
    /// Sorted by address.
    modules: &'a [LoadedModule],
    mapped: MappedSymbols,
    generated: &'a NamedCode,
    symbolicate: Symbolicate,
    /// Whether `backtrace` may be asked; determined when it is first needed.
    may_fall_back: OnceCell<bool>,
    unread: RefCell<Vec<UnreadFile>>,
    /// Paths of the modules whose files could not all be read.
    incomplete: RefCell<Vec<PathBuf>>,
    /// Number of addresses without a name for lack of memory.
    unnamed_for_memory: Cell<u64>,
}

/// Memory that looking up an address may take, in bytes: the debug information of a compilation
/// unit.
const LOOKUP_BYTES: usize = 64 << 20;
/// Memory with which addresses are looked up without a check, in bytes.
const AMPLE_BYTES: usize = 1 << 30;

impl<'a> CodeAddressService<'a> {
    pub(crate) fn new(
        modules: &'a [LoadedModule],
        generated: &'a NamedCode,
        symbolicate: Symbolicate,
    ) -> Self {
        Self {
            modules,
            mapped: MappedSymbols::of(modules),
            generated,
            symbolicate,
            may_fall_back: OnceCell::new(),
            unread: RefCell::default(),
            incomplete: RefCell::default(),
            unnamed_for_memory: Cell::new(0),
        }
    }

    /// Returns the number of addresses that have got no name for lack of memory.
    pub(crate) fn unnamed_for_memory(&self) -> u64 {
        self.unnamed_for_memory.get()
    }

    fn count_unnamed_for_memory(&self) {
        self.unnamed_for_memory
            .set(self.unnamed_for_memory.get() + 1);
    }

    /// Returns the names of these addresses. An address without a name is absent from the result.
    ///
    /// Reads the debug information of every module concerned, one module after another, and frees
    /// its memory. Cost: some ms to some seconds.
    pub(crate) fn resolve(&self, addresses: Vec<SampledAddress>) -> AddressNames {
        self.resolve_with_progress(addresses, &ProgressLogger::unwatched())
    }

    /// Resolves addresses like [`Self::resolve`], and reports the progress.
    pub(crate) fn resolve_with_progress(
        &self,
        mut addresses: Vec<SampledAddress>,
        progress: &ProgressLogger,
    ) -> AddressNames {
        addresses.sort_unstable();
        addresses.dedup();
        let mut names = AddressNames::new();
        let count = addresses.len();
        let mut addresses = progress
            .watch(addresses.into_iter(), count, ProgressLocation::Names)
            .peekable();
        while let Some(address) = addresses.next() {
            match self.name_source(address) {
                NameSource::Unknown => {}
                NameSource::Named(name) => {
                    names.insert(address, AddressName::without_place(vec![name]));
                }
                NameSource::ModuleFile(index) => {
                    // The files stay mapped for all addresses up to those of another module.
                    let is_here = |next: &SampledAddress| match self.name_source(*next) {
                        NameSource::ModuleFile(next) => next == index,
                        NameSource::Unknown | NameSource::Named(_) => true,
                    };
                    let here =
                        iter::once(address).chain(iter::from_fn(|| addresses.next_if(is_here)));
                    self.resolve_in_module(index, here, &mut names);
                }
            }
        }
        if self.may_fall_back.get() == Some(&true) {
            free_backtrace_files();
        }
        names
    }

    /// Returns the files without names in which addresses were looked up so far.
    pub(crate) fn take_unread_files(&self) -> Vec<UnreadFile> {
        self.unread.take()
    }

    /// Returns the paths of the modules whose files could not all be read.
    pub(crate) fn take_incomplete(&self) -> Vec<PathBuf> {
        self.incomplete.take()
    }

    /// Resolves addresses in this module, and those among them that are in none.
    fn resolve_in_module(
        &self,
        index: usize,
        addresses: impl Iterator<Item = SampledAddress>,
        names: &mut AddressNames,
    ) {
        let has_ample_memory = is_memory_available(AMPLE_BYTES);
        let image = &self.modules[index].image;
        let files = ModuleFiles::open(&self.modules[index]);
        ModuleSymbols::with_files(&files, image.bias, |symbols| {
            for address in addresses {
                if !has_ample_memory && !is_memory_available(LOOKUP_BYTES) {
                    self.count_unnamed_for_memory();
                    continue;
                }
                let found = match self.name_source(address) {
                    NameSource::Unknown => AddressName::default(),
                    NameSource::Named(name) => AddressName::without_place(vec![name]),
                    NameSource::ModuleFile(_) => {
                        let address = address.lookup_address();
                        let in_files = symbols.names_at(address, self.symbolicate);
                        if in_files.functions.is_empty() && files.lacks_memory {
                            self.count_unnamed_for_memory();
                            in_files
                        } else if in_files.functions.is_empty() {
                            let names =
                                self.names_without_file(address, image, files.may_fall_back);
                            AddressName::without_place(names)
                        } else {
                            in_files
                        }
                    }
                };
                if !found.functions.is_empty() {
                    names.insert(address, found);
                }
            }
        });
        if files.lacks_memory || files.unread.is_some() || !has_ample_memory {
            self.incomplete.borrow_mut().push(image.path.clone());
        }
        self.unread.borrow_mut().extend(files.unread);
    }

    fn name_source(&self, address: SampledAddress) -> NameSource {
        let address = address.lookup_address();
        if let Some(code) = self.generated.find(address) {
            return NameSource::Named(FrameName::name_only(&code.name));
        }
        let after = self
            .modules
            .partition_point(|module| module.image.range.start <= address);
        let index = after.checked_sub(1);
        let Some(index) = index.filter(|&index| self.modules[index].image.range.contains(&address))
        else {
            return NameSource::Unknown;
        };
        match self.mapped.name_at(address) {
            Some(name) => NameSource::Named(FrameName::name_only(name)),
            None => NameSource::ModuleFile(index),
        }
    }

    /// Returns the functions at an address for which the module's files have no name.
    fn names_without_file(
        &self,
        address: u64,
        image: &ModuleImage,
        may_fall_back: bool,
    ) -> Vec<FrameName> {
        if CallFrames::of(image).is_some_and(|frames| frames.is_signal_trampoline(address)) {
            return vec![FrameName::name_only(SIGNAL_TRAMPOLINE)];
        }
        if may_fall_back && *self.may_fall_back.get_or_init(may_use_backtrace) {
            names_by_backtrace(address)
        } else {
            Vec::new()
        }
    }
}

/// Where the name of an address comes from.
enum NameSource {
    /// The address lies in no known code.
    Unknown,
    /// Generated code, or a module without a file, which have the name themselves.
    Named(FrameName),
    /// The files of the module with this index.
    ModuleFile(usize),
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::platform::{TestFolder, TestLibrary};
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
                .is_some_and(|file| file.ends_with("resolver.rs")),
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
        let library = TestLibrary::load(path);
        let mut table = ModuleTable::default();
        table.refresh();
        let modules = table.all();
        let asked = SampledAddress {
            address: CodeAddress::new(library.address()),
            is_return_address: false,
        };
        let generated = NamedCode::default();
        let service = CodeAddressService::new(&modules, &generated, symbolicate);
        let names = service.resolve(vec![asked]).remove(&asked).expect("a name");
        library.close();
        names.functions
    }

    /// Returns the name of a function whose debug information is in a file of its own, which
    /// `change` may change before.
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
                format!(
                    "int f{name}(int) __asm__(\"{name}\") __attribute__((alias(\"{defined}\")));\n"
                )
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
            // With debug information, without, and with the dynamic symbols alone.
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
            let made = std::process::Command::new("mkfifo").arg(path).status();
            assert!(made.expect("a pipe").success());
        });
        // From the symbol table.
        assert_eq!(name.function, "enter");
    }
}
