//! Reads the tables of frames and stacks of the processed format.

use crate::export::read::builder::{ModelBuilder, Strings, category_pair};
use crate::export::read::columns::{fill_column, for_rows, required_column};
use crate::export::read::processed_profile::ProcessedProfile;
use crate::export::read::value::{Object, Value};
use crate::model::{
    CategoryPair, Frame, FrameId, Function, FunctionKind, ModuleId, NativeSymbol, SourceText,
    StackId, TextId, is_placeholder,
};
use crate::types::ReadError;

/// The type of a resource that is a library.
const LIBRARY_RESOURCE: u64 = 1;

/// The paths of the table of sources. Before version 58, functions had the path itself.
#[derive(Default)]
pub(super) struct SourceFiles(Vec<TextId>);

/// The model's stack for each of the stack table.
pub(super) struct Tables {
    stacks: Vec<StackId>,
}

#[derive(Clone, Copy)]
struct Resource {
    name: TextId,
    is_library: bool,
    module: Option<ModuleId>,
}

#[derive(Clone)]
struct Func {
    name: TextId,
    is_js: bool,
    is_relevant_for_js: bool,
    resource: Option<Resource>,
    file: Option<TextId>,
    line: Option<u32>,
    column: Option<u32>,
}

struct FrameRow {
    func: u32,
    address: Option<u64>,
    inline_depth: u16,
    native_symbol: Option<u32>,
    module: Option<ModuleId>,
    category: Option<CategoryPair>,
    line: Option<u32>,
    column: Option<u32>,
    inner_window_id: u64,
    implementation: Option<TextId>,
}

impl SourceFiles {
    /// Reads the paths of the sources, and adds their contents to the model.
    pub(super) fn read<'a>(
        builder: &mut ModelBuilder,
        shared: &Object<'a, '_>,
        strings: &mut Strings<'a>,
    ) -> Result<Self, ReadError> {
        let Some(sources) = shared.get("sources") else {
            return Ok(Self::default());
        };
        let sources = sources.object("a table")?;
        let profile = &mut builder.profile;
        let mut paths = required_column(&sources, "filename", |name| strings.id(profile, name))?;
        let contents = &mut builder.profile.sources;
        fill_column(&sources, "content", &mut paths, |path, content| {
            let text = content.string("the content of a source file")?;
            contents.insert(*path, SourceText(text.into_owned()));
            Ok(())
        })?;
        Ok(Self(paths))
    }
}

/// Returns an index of a list; `None` for −1, which stands for no element in some columns.
fn optional_index(
    value: Value<'_, '_>,
    length: usize,
    noun: &str,
) -> Result<Option<usize>, ReadError> {
    match value.text {
        "-1" => Ok(None),
        _ => value.index(length, noun).map(Some),
    }
}

/// Returns a line or a column; `None` if it is unknown.
fn position(value: Value<'_, '_>) -> Result<Option<u32>, ReadError> {
    let number = value.unsigned("a number from 0 on")?;
    Ok(u32::try_from(number).ok().filter(|number| *number > 0))
}

impl Tables {
    /// Reads the tables of a thread, or those of all threads.
    pub(super) fn read<'a>(
        builder: &mut ModelBuilder,
        context: &ProcessedProfile,
        tables: &Object<'a, '_>,
        strings: &mut Strings<'a>,
        files: &SourceFiles,
    ) -> Result<Self, ReadError> {
        let funcs = read_funcs(builder, context, tables, strings, files)?;
        let symbols = read_symbols(builder, context, tables, strings)?;
        let rows = read_frames(builder, context, tables, strings, funcs.len(), &symbols)?;
        let frames = rows.iter().map(|row| add_frame(builder, &funcs, row));
        let frames = frames.collect::<Vec<_>>();
        drop(rows);
        let stack_table = tables.require("stackTable", "a table")?;
        let stack_table = stack_table.object("a table")?;
        let stack_frames = required_column(&stack_table, "frame", |frame| {
            frame.index(frames.len(), "a frame index")
        })?;
        let mut prefixes: Vec<Option<u32>> = vec![None; stack_frames.len()];
        // Since version 66, a prefix is a distance; 0 for none.
        let has_distances = stack_table.get("prefixOffset").is_some();
        let column = match has_distances {
            true => "prefixOffset",
            false => "prefix",
        };
        stack_table.require(column, "a column, which is an array")?;
        for_rows(&stack_table, column, stack_frames.len(), |row, value| {
            prefixes[row] = match has_distances {
                true => match value.index(row + 1, "the distance of an earlier stack")? {
                    0 => None,
                    distance => Some((row - distance) as u32),
                },
                false => optional_index(value, row, "an earlier stack index")?
                    .map(|prefix| prefix as u32),
            };
            Ok(())
        })?;
        let mut stacks: Vec<StackId> = Vec::with_capacity(stack_frames.len());
        for (frame, prefix) in stack_frames.into_iter().zip(prefixes) {
            let prefix = prefix.map(|prefix| stacks[prefix as usize]);
            stacks.push(builder.profile.append_frame(prefix, frames[frame]));
        }
        Ok(Self { stacks })
    }

    /// Returns the model's stack for an index of the stack table.
    pub(super) fn stack(&self, index: Value<'_, '_>) -> Result<StackId, ReadError> {
        let index = index.index(self.stacks.len(), "a stack index")?;
        Ok(self.stacks[index])
    }
}

fn read_resources<'a>(
    builder: &mut ModelBuilder,
    context: &ProcessedProfile,
    tables: &Object<'a, '_>,
    strings: &mut Strings<'a>,
) -> Result<Vec<Resource>, ReadError> {
    let Some(table) = tables.get("resourceTable") else {
        return Ok(Vec::new());
    };
    let table = table.object("a table")?;
    let profile = &mut builder.profile;
    let mut resources = required_column(&table, "name", |name| {
        let name = match name.text {
            // Before version 41, some resources had no name.
            "-1" | "null" => profile.intern(""),
            _ => strings.id(profile, name)?,
        };
        Ok(Resource {
            name,
            is_library: false,
            module: None,
        })
    })?;
    fill_column(&table, "type", &mut resources, |resource, kind| {
        resource.is_library = kind.unsigned("the type of a resource")? == LIBRARY_RESOURCE;
        Ok(())
    })?;
    fill_column(&table, "lib", &mut resources, |resource, lib| {
        let modules = &context.modules;
        let lib = optional_index(lib, modules.len(), "a library index")?;
        resource.module = lib.map(|lib| modules[lib]);
        Ok(())
    })?;
    Ok(resources)
}

fn read_funcs<'a>(
    builder: &mut ModelBuilder,
    context: &ProcessedProfile,
    tables: &Object<'a, '_>,
    strings: &mut Strings<'a>,
    files: &SourceFiles,
) -> Result<Vec<Func>, ReadError> {
    let resources = read_resources(builder, context, tables, strings)?;
    let table = tables.require("funcTable", "a table")?;
    let table = table.object("a table")?;
    let profile = &mut builder.profile;
    let mut funcs = required_column(&table, "name", |name| {
        Ok(Func {
            name: strings.id(profile, name)?,
            is_js: false,
            is_relevant_for_js: false,
            resource: None,
            file: None,
            line: None,
            column: None,
        })
    })?;
    let rows = &mut funcs;
    fill_column(&table, "isJS", rows, |func, value| {
        func.is_js = value.bool()?;
        Ok(())
    })?;
    fill_column(&table, "relevantForJS", rows, |func, value| {
        func.is_relevant_for_js = value.bool()?;
        Ok(())
    })?;
    fill_column(&table, "resource", rows, |func, index| {
        let index = optional_index(index, resources.len(), "a resource index")?;
        func.resource = index.map(|index| resources[index]);
        Ok(())
    })?;
    fill_column(&table, "fileName", rows, |func, name| {
        func.file = Some(strings.id(profile, name)?);
        Ok(())
    })?;
    fill_column(&table, "source", rows, |func, index| {
        let index = optional_index(index, files.0.len(), "a source index")?;
        func.file = index.map(|index| files.0[index]);
        Ok(())
    })?;
    fill_column(&table, "lineNumber", rows, |func, line| {
        func.line = position(line)?;
        Ok(())
    })?;
    fill_column(&table, "columnNumber", rows, |func, column| {
        func.column = position(column)?;
        Ok(())
    })?;
    Ok(funcs)
}

/// Adds the native symbols to the model, and returns the model's index of each.
fn read_symbols<'a>(
    builder: &mut ModelBuilder,
    context: &ProcessedProfile,
    tables: &Object<'a, '_>,
    strings: &mut Strings<'a>,
) -> Result<Vec<u32>, ReadError> {
    let Some(table) = tables.get("nativeSymbols") else {
        return Ok(Vec::new());
    };
    let table = table.object("a table")?;
    let modules = &context.modules;
    let libs = required_column(&table, "libIndex", |lib| {
        let lib = lib.index(modules.len(), "a library index")?;
        Ok(modules[lib])
    })?;
    let profile = &mut builder.profile;
    let mut symbols: Vec<_> = libs
        .into_iter()
        .map(|module| NativeSymbol {
            module,
            address: 0,
            size: None,
            name: TextId::default(),
        })
        .collect();
    fill_column(&table, "address", &mut symbols, |symbol, address| {
        symbol.address = address.unsigned("an address relative to the library")?;
        Ok(())
    })?;
    fill_column(&table, "functionSize", &mut symbols, |symbol, size| {
        symbol.size = Some(size.unsigned("the size of a function in bytes")?);
        Ok(())
    })?;
    let unnamed = profile.intern("");
    symbols.iter_mut().for_each(|symbol| symbol.name = unnamed);
    fill_column(&table, "name", &mut symbols, |symbol, name| {
        symbol.name = strings.id(profile, name)?;
        Ok(())
    })?;
    Ok(symbols
        .into_iter()
        .map(|symbol| builder.native_symbol(symbol))
        .collect())
}

fn read_frames<'a>(
    builder: &mut ModelBuilder,
    context: &ProcessedProfile,
    tables: &Object<'a, '_>,
    strings: &mut Strings<'a>,
    funcs: usize,
    symbols: &[u32],
) -> Result<Vec<FrameRow>, ReadError> {
    let table = tables.require("frameTable", "a table")?;
    let table = table.object("a table")?;
    let mut rows = required_column(&table, "func", |func| {
        Ok(FrameRow {
            func: func.index(funcs, "a function index")? as u32,
            address: None,
            inline_depth: 0,
            native_symbol: None,
            module: None,
            category: None,
            line: None,
            column: None,
            inner_window_id: 0,
            implementation: None,
        })
    })?;
    let rows_mut = &mut rows;
    fill_column(&table, "address", rows_mut, |row, address| {
        row.address = match address.text {
            "-1" => None,
            _ => Some(address.unsigned("an address relative to the library, or -1")?),
        };
        Ok(())
    })?;
    fill_column(&table, "inlineDepth", rows_mut, |row, depth| {
        row.inline_depth = depth.index(usize::from(u16::MAX) + 1, "an inline depth")? as u16;
        Ok(())
    })?;
    fill_column(&table, "nativeSymbol", rows_mut, |row, index| {
        let index = optional_index(index, symbols.len(), "a native symbol index")?;
        row.native_symbol = index.map(|index| symbols[index]);
        Ok(())
    })?;
    let modules = &context.modules;
    fill_column(&table, "lib", rows_mut, |row, lib| {
        let lib = optional_index(lib, modules.len(), "a library index")?;
        row.module = lib.map(|lib| modules[lib]);
        Ok(())
    })?;
    fill_column(&table, "category", rows_mut, |row, category| {
        row.category = category_pair(&context.categories, Some(category), None)?;
        Ok(())
    })?;
    let mut categories = Vec::new();
    if let Some(column) = table.get("category") {
        column.each("a column", |_, category| {
            categories.push(category.text);
            Ok(())
        })?;
    }
    for_rows(&table, "subcategory", rows_mut.len(), |index, own| {
        if rows_mut[index].category.is_some() {
            let category = Value {
                text: categories[index],
                place: own.place,
            };
            rows_mut[index].category =
                category_pair(&context.categories, Some(category), Some(own))?;
        }
        Ok(())
    })?;
    fill_column(&table, "line", rows_mut, |row, line| {
        row.line = position(line)?;
        Ok(())
    })?;
    fill_column(&table, "column", rows_mut, |row, column| {
        row.column = position(column)?;
        Ok(())
    })?;
    fill_column(&table, "innerWindowID", rows_mut, |row, id| {
        row.inner_window_id = id.unsigned("the id of a page")?;
        Ok(())
    })?;
    // Before version 54.
    let profile = &mut builder.profile;
    fill_column(&table, "implementation", rows_mut, |row, name| {
        row.implementation = Some(strings.id(profile, name)?);
        Ok(())
    })?;
    Ok(rows)
}

fn add_frame(builder: &mut ModelBuilder, funcs: &[Func], row: &FrameRow) -> FrameId {
    let func = &funcs[row.func as usize];
    let library = func.resource.filter(|resource| resource.is_library);
    let module = match func.is_js {
        true => None,
        false => row.module.or(library.and_then(|library| library.module)),
    };
    // Before version 70, and in imported profiles, a library may have no more than a name.
    let module = match library {
        Some(library) if module.is_none() && !func.is_js => {
            let name = builder.profile.text(library.name).to_owned();
            Some(builder.unplaced_module(0, &name))
        }
        _ => module,
    };
    let is_native = module.is_some() || row.address.is_some() || row.native_symbol.is_some();
    let kind = if func.is_js {
        FunctionKind::Script
    } else if is_native {
        FunctionKind::Native
    } else if is_placeholder(builder.profile.text(func.name)) {
        FunctionKind::Structure
    } else {
        FunctionKind::Label
    };
    let profile = &mut builder.profile;
    let function = profile.intern_function(Function {
        name: func.name,
        kind,
        module,
        file: func.file,
        line: func.line,
        column: func.column,
        is_relevant_for_js: func.is_relevant_for_js,
    });
    profile.intern_frame(&Frame {
        function,
        address: row.address,
        inline_depth: row.inline_depth,
        native_symbol: row.native_symbol,
        line: row.line,
        column: row.column,
        category: row.category,
        inner_window_id: row.inner_window_id,
        implementation: row.implementation,
    })
}
