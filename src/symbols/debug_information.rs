//! Looks up addresses in the debug information and the symbol table of mapped files.
//!
//! The debug information may be split: a unit may be in a package in the same folder, or in its
//! own file, whose path the unit contains. Such a file is mapped when the first address lies in
//! it, and then kept.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell};
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use addr2line::{Context, LookupContinuation, LookupResult, SplitDwarfLoad};
use gimli::{
    AbbreviationsCacheStrategy, Dwarf, DwarfPackage, DwarfPackageSections, DwarfSections,
    EndianSlice, NativeEndian, SectionId,
};
use object::{
    CompressedData, Object, ObjectSection, ObjectSymbol, SymbolKind, SymbolMap, SymbolMapName,
};

use crate::platform::{FileMapping, on_own_descriptors, to_path_bytes};
use crate::symbols::demangle::demangled;
use crate::symbols::module_files::{ObjectFile, SymbolFile};
use crate::symbols::names::{AddressName, FrameName};
use crate::symbols::symbol_tables::{
    PltNames, PublicNames, is_reserved, merge_function_inlined_into_itself,
};

pub(super) type Reader<'a> = EndianSlice<'a, NativeEndian>;
/// The content of a section. One that is compressed in the file is decompressed.
type Bytes<'a> = Cow<'a, [u8]>;

/// A file, with the bytes that its debug information refers to.
pub(super) struct ParsedFile<'a> {
    sections: DwarfSections<Bytes<'a>>,
    supplementary: Option<DwarfSections<Bytes<'a>>>,
    package: Option<DwarfPackageSections<Bytes<'a>>>,
    plt: PltNames<'a>,
    symbols: SymbolMap<SymbolMapName<'a>>,
    /// Whether `symbols` are those of all functions: whether there is one of a function that no other
    /// module can call. Linkers and `strip` can leave out these.
    has_all_symbols: bool,
    public_names: PublicNames<'a>,
}

impl<'a> ParsedFile<'a> {
    /// Returns `None` for a file of another format.
    pub(super) fn parse(file: &'a SymbolFile) -> Option<Self> {
        let object = ObjectFile::parse(&*file.main).ok()?;
        let package = file.package.as_deref().and_then(|package| {
            let package = ObjectFile::parse(package).ok()?;
            let load = |id: SectionId| {
                // All sections: the package's index tells where a unit's part of each one is.
                Ok::<_, gimli::Error>(section(&package, id.dwo_name()))
            };
            DwarfPackageSections::load(load).ok()
        });
        let supplementary = file.supplementary.as_deref().and_then(|supplementary| {
            let object = ObjectFile::parse(supplementary).ok()?;
            Some(sections_with_names(&object, |id| Some(id.name())))
        });
        let symbols = object.symbol_map();
        Some(Self {
            sections: sections_with_names(&object, |id| Some(id.name())),
            supplementary,
            package,
            plt: PltNames::of(&file.main, &object),
            public_names: PublicNames::of(&object, &symbols),
            has_all_symbols: object
                .symbols()
                .any(|symbol| symbol.is_local() && symbol.kind() == SymbolKind::Text),
            symbols,
        })
    }

    /// Returns the maximum number of files that the debug information is split into.
    pub(super) fn max_split_files(&self) -> usize {
        let dwarf = self.sections.borrow(|bytes| self.reader(bytes));
        let mut units = dwarf.units();
        let mut count = 0;
        while let Ok(Some(_)) = units.next() {
            count += 1;
        }
        count
    }

    /// Returns the debug information.
    pub(super) fn dwarf(&self) -> Dwarf<Reader<'_>> {
        let supplementary = self.supplementary.as_ref();
        self.sections
            .borrow_with_sup(supplementary, |bytes| self.reader(bytes))
    }

    fn reader<'s>(&self, bytes: &'s Bytes<'_>) -> Reader<'s> {
        EndianSlice::new(bytes, NativeEndian)
    }
}

/// Returns the sections of a file, without those that say nothing about names. The places of
/// variables, for example, are a sixth of the C library's debug information, and need not be
/// decompressed.
fn sections_with_names<'a>(
    object: &ObjectFile<'a>,
    name_of: impl Fn(SectionId) -> Option<&'static str>,
) -> DwarfSections<Bytes<'a>> {
    let is_needed = |id: &SectionId| {
        !matches!(
            id,
            SectionId::DebugLoc
                | SectionId::DebugLocLists
                | SectionId::DebugMacinfo
                | SectionId::DebugMacro
        )
    };
    let load = |id| section(object, Some(id).filter(is_needed).and_then(&name_of));
    let Ok(sections) = DwarfSections::load(|id| Ok::<_, Infallible>(load(id)));
    sections
}

/// Returns a section. Returns no bytes if the section is missing, or if this build cannot
/// decompress it: the file's symbols still name its functions.
fn section<'a>(object: &ObjectFile<'a>, name: Option<&str>) -> Bytes<'a> {
    let found = name.and_then(|name| object.section_by_name(name));
    let content = found.and_then(|section| decompressed(section.compressed_data().ok()?).ok());
    content.unwrap_or(Cow::Borrowed(&[]))
}

/// Returns the content of a section; an error if this build cannot decompress it. Zstandard needs
/// a separate crate, which comes with the feature `mini_debug_info`.
fn decompressed(section: CompressedData<'_>) -> object::Result<Bytes<'_>> {
    #[cfg(all(feature = "gzip", not(feature = "mini_debug_info")))]
    if section.format == object::CompressionFormat::Zlib
        && let Ok(size) = usize::try_from(section.uncompressed_size)
    {
        let mut bytes = Vec::new();
        // A size that the section only claims, and the memory for it, must not end the process.
        let has_memory = bytes.try_reserve_exact(size).is_ok();
        let mut decompress = flate2::Decompress::new(true);
        let finish = flate2::FlushDecompress::Finish;
        if has_memory
            && decompress
                .decompress_vec(section.data, &mut bytes, finish)
                .is_ok()
            && bytes.len() == size
        {
            return Ok(Cow::Owned(bytes));
        }
    }
    // Without the feature `compression` of `object`, this fails for compressed sections.
    section.decompress()
}

/// Values that are added behind a shared reference, and keep their places.
pub(super) struct Store<T> {
    cells: Box<[OnceCell<T>]>,
    used: Cell<usize>,
}

impl<T> Store<T> {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self {
            cells: (0..capacity).map(|_| OnceCell::new()).collect(),
            used: Cell::new(0),
        }
    }

    /// Returns `None` if the store is full.
    fn add(&self, value: T) -> Option<&T> {
        let cell = self.cells.get(self.used.get())?;
        self.used.set(self.used.get() + 1);
        Some(cell.get_or_init(|| value))
    }
}

/// The files of split debug information that were mapped so far.
pub(super) type SplitFiles = Store<FileMapping>;

/// Their sections.
pub(super) type SplitSections<'a> = Store<DwarfSections<Bytes<'a>>>;

/// The names in one file.
pub(super) struct DebugInformation<'s, 'a> {
    file: &'s ParsedFile<'a>,
    /// Made for the first address that is looked up in the debug information. Names alone mostly need
    /// none: the tables of all units take longer than the symbol table. `None` if the debug
    /// information is malformed.
    context: OnceCell<Option<Context<Reader<'s>>>>,
    package: Option<DwarfPackage<Reader<'s>>>,
    split_files: &'a SplitFiles,
    split_sections: &'s SplitSections<'a>,
    has_split_files: Cell<bool>,
}

impl<'s, 'a> DebugInformation<'s, 'a> {
    pub(super) fn new(
        file: &'s ParsedFile<'a>,
        split_files: &'a SplitFiles,
        split_sections: &'s SplitSections<'a>,
    ) -> Self {
        let package = file.package.as_ref().and_then(|package| {
            let empty = EndianSlice::new(&[], NativeEndian);
            package.borrow(|bytes| file.reader(bytes), empty).ok()
        });
        Self {
            file,
            context: OnceCell::new(),
            package,
            split_files,
            split_sections,
            has_split_files: Cell::new(false),
        }
    }

    /// Returns the tables of the units; `None` if the debug information is malformed.
    fn context(&self) -> Option<&Context<Reader<'s>>> {
        let make = || {
            let mut dwarf = self.file.dwarf();
            dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
            Context::from_dwarf(dwarf).ok()
        };
        self.context.get_or_init(make).as_ref()
    }

    /// Returns the PLT entry that contains an address.
    pub(super) fn plt_entry_at(&self, address: u64) -> Option<AddressName> {
        self.file.plt.name_at(address)
    }

    /// Returns whether a part of the debug information was looked for in a split file.
    pub(super) fn has_split_files(&self) -> bool {
        self.has_split_files.get()
    }

    /// Returns whether the file names all functions without its debug information.
    pub(super) fn has_all_symbols(&self) -> bool {
        self.file.has_all_symbols
    }

    /// Returns the symbol that contains an address, by its public name if it has one.
    pub(super) fn symbol_at(&self, address: u64) -> Option<SymbolMapName<'a>> {
        let symbol = self.file.symbols.containing(address).copied()?;
        Some(match self.file.public_names.instead_of(&symbol) {
            Some(name) => SymbolMapName::new(symbol.address(), symbol.size(), name),
            None => symbol,
        })
    }

    /// Returns the functions at an address, the innermost inlined one first.
    pub(super) fn names_at(&self, address: u64) -> Vec<FrameName> {
        let mut names = Vec::new();
        let Some(context) = self.context() else {
            return names;
        };
        let mut lookup = context.find_frames(address);
        let frames = loop {
            match lookup {
                LookupResult::Output(frames) => break frames,
                LookupResult::Load { load, continuation } => {
                    lookup = continuation.resume(self.load_split(load));
                }
            }
        };
        let Ok(mut frames) = frames else {
            return names;
        };
        while let Ok(Some(frame)) = frames.next() {
            let name = frame
                .function
                .as_ref()
                .and_then(|function| function.raw_name().ok());
            // The outermost frame may have only a location; its name then comes from the symbol
            // table.
            let function = match name {
                Some(name) => demangled(&name),
                None => match self.symbol_at(address) {
                    Some(symbol) => demangled(symbol.name()),
                    None => continue,
                },
            };
            let location = frame.location.as_ref();
            names.push(FrameName {
                function,
                file: location
                    .and_then(|location| location.file)
                    .map(str::to_owned),
                line: location.and_then(|location| location.line),
                column: location
                    .and_then(|location| location.column)
                    .filter(|column| *column > 0),
            });
        }
        merge_function_inlined_into_itself(&mut names);
        // The debug information has the name that the source defines, which may be the internal one.
        if let Some(outermost) = names.last_mut()
            && is_reserved(&outermost.function)
            && let Some(symbol) = self.symbol_at(address)
            && !is_reserved(symbol.name())
        {
            outermost.function = demangled(symbol.name());
        }
        names
    }

    /// Returns a unit of split debug information; `None` if it is missing or another one.
    fn load_split(&self, load: SplitDwarfLoad<Reader<'s>>) -> Option<Arc<Dwarf<Reader<'s>>>> {
        if let Some(package) = &self.package
            && let Some(unit) = package.find_cu(load.dwo_id, &load.parent).ok()?
        {
            return Some(Arc::new(unit));
        }
        self.has_split_files.set(true);
        let mut path = PathBuf::new();
        if let Some(folder) = &load.comp_dir {
            path.push(to_path_bytes(folder.slice()));
        }
        path.push(to_path_bytes(load.path.as_ref()?.slice()));
        let mapping = on_own_descriptors(move || FileMapping::open(&path)).ok()?;
        let mapping = self.split_files.add(mapping)?;
        let object = ObjectFile::parse(&**mapping).ok()?;
        let sections = sections_with_names(&object, SectionId::dwo_name);
        let sections = self.split_sections.add(sections)?;
        let mut dwarf = sections.borrow(|bytes| EndianSlice::new(bytes, NativeEndian));
        let header = dwarf.units().next().ok()??;
        let is_wanted = dwarf.unit(header).ok()?.dwo_id == Some(load.dwo_id);
        dwarf.make_dwo(&load.parent);
        is_wanted.then(|| Arc::new(dwarf))
    }
}
