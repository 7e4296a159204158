//! The names in the files of a module.

use crate::symbols::debug_information::{DebugInformation, ParsedFile, SplitFiles, SplitSections};
use crate::symbols::demangle::demangled;
use crate::symbols::module_files::ModuleFiles;
use crate::symbols::names::{AddressName, FrameName, SymbolPlace};
use crate::types::Symbolicate;

/// The names of one module.
pub(super) struct ModuleSymbols<'s, 'a> {
    bias: u64,
    /// The file with the most information first.
    files: Vec<DebugInformation<'s, 'a>>,
}

impl ModuleSymbols<'_, '_> {
    /// Calls `body` with the names in the files of a module with this load bias.
    pub(super) fn with_files<T>(
        files: &ModuleFiles,
        bias: u64,
        body: impl FnOnce(&ModuleSymbols<'_, '_>) -> T,
    ) -> T {
        let parsed = files.files.iter().filter_map(ParsedFile::parse);
        // Each refers to those before it.
        let parsed: Vec<ParsedFile<'_>> = parsed.collect();
        let max_split_files = parsed.iter().map(ParsedFile::max_split_files).sum();
        let split_files = SplitFiles::with_capacity(max_split_files);
        let split_sections = SplitSections::with_capacity(max_split_files);
        let files = parsed
            .iter()
            .map(|file| DebugInformation::new(file, &split_files, &split_sections));
        let symbols = ModuleSymbols {
            bias,
            files: files.collect(),
        };
        body(&symbols)
    }

    /// Returns whether debug information of the module was looked for in split files.
    pub(super) fn has_split_files(&self) -> bool {
        self.files.iter().any(DebugInformation::has_split_files)
    }

    /// Returns what the files say of an address. The result has no functions if they do not name it.
    pub(super) fn names_at(&self, address: u64, symbolicate: Symbolicate) -> AddressName {
        let in_file = address.wrapping_sub(self.bias);
        // First, because a symbol without a size in an earlier section seems to cover the entries.
        if let Some(mut entry) = self
            .files
            .iter()
            .find_map(|file| file.plt_entry_at(in_file))
        {
            entry.symbol = entry.symbol.map(|symbol| symbol.moved(self.bias));
            return entry;
        }
        let symbols = || self.files.iter().filter_map(|file| file.symbol_at(in_file));
        // A symbol without a size seems to cover all addresses up to the next one.
        let symbol = symbols()
            .find(|symbol| symbol.size() > 0)
            .or_else(|| symbols().next());
        let by_symbol = || {
            let names = symbol.map(|symbol| FrameName::name_only(&demangled(symbol.name())));
            names.into_iter().collect()
        };
        let has_all_symbols = || self.files.iter().any(DebugInformation::has_all_symbols);
        let functions = match symbolicate {
            // Reading the debug information would take longer than everything else, and name nothing
            // more.
            Symbolicate::NamesOnly if symbol.is_some() || has_all_symbols() => by_symbol(),
            Symbolicate::NamesOnly | Symbolicate::Full | Symbolicate::No => {
                let mut by_debug_information = self.files.iter().map(|file| file.names_at(in_file));
                by_debug_information
                    .find(|names| !names.is_empty())
                    .unwrap_or_else(by_symbol)
            }
        };
        let place = symbol.map(|symbol| SymbolPlace {
            start: symbol.address(),
            size: symbol.size(),
        });
        AddressName {
            functions,
            symbol: place.map(|place| place.moved(self.bias)),
        }
    }
}
