//! Reads the tables of frames and stacks of the processed format.

use crate::export::read::builder::{ModelBuilder, Strings, category_pair};
use crate::export::read::context::Context;
use crate::export::read::table::{TableRow, each_row};
use crate::export::read::value::{Object, Value};
use crate::model::{
    Frame, FrameId, Function, FunctionKind, ModuleId, NativeSymbol, SourceText, StackId, TextId,
    is_placeholder,
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

/// A function before it is known whether its frames have addresses.
struct Func {
    name: TextId,
    is_js: bool,
    is_relevant_for_js: bool,
    resource: Option<Resource>,
    file: Option<TextId>,
    line: Option<u32>,
    column: Option<u32>,
}

impl SourceFiles {
    /// Reads the paths of the sources, and adds their contents to the model.
    pub(super) fn read<'a>(
        builder: &mut ModelBuilder,
        context: &Context,
        shared: &Object<'a, '_>,
        strings: &mut Strings<'a>,
    ) -> Result<Self, ReadError> {
        let Some(sources) = shared.get("sources") else {
            return Ok(Self::default());
        };
        let sources = sources.object("a table")?;
        let profile = &mut builder.profile;
        let mut paths = Vec::new();
        let columns = (&["filename", "content"][..], 1);
        each_row(context.form, &sources, columns, |_, row| {
            let path = strings.id(profile, row.require("filename", "a string index")?)?;
            if let Some(content) = row.get("content") {
                let text = content.string("the content of a source file")?;
                profile.sources.insert(path, SourceText(text.into_owned()));
            }
            paths.push(path);
            Ok(())
        })?;
        Ok(Self(paths))
    }
}

/// Returns an index of a list; `None` for −1, which some columns use for a missing element.
fn optional_index(
    value: Option<Value<'_, '_>>,
    length: usize,
    noun: &str,
) -> Result<Option<usize>, ReadError> {
    let value = value.filter(|value| value.text != "-1");
    value.map(|value| value.index(length, noun)).transpose()
}

/// Returns a line or a column.
fn position(row: &TableRow<'_, '_>, column: &str) -> Result<Option<u32>, ReadError> {
    let position = row.get(column).map(|position| position.position());
    position.transpose().map(Option::flatten)
}

impl Tables {
    /// Reads the tables of a thread, or those of all threads.
    pub(super) fn read<'a>(
        builder: &mut ModelBuilder,
        context: &Context,
        tables: &Object<'a, '_>,
        strings: &mut Strings<'a>,
        files: &SourceFiles,
    ) -> Result<Self, ReadError> {
        let funcs = read_funcs(builder, context, tables, strings, files)?;
        let symbols = read_symbols(builder, context, tables, strings)?;
        let frames = read_frames(builder, context, tables, strings, &funcs, &symbols)?;
        let table = tables.require("stackTable", "a table")?;
        let table = table.object("a table")?;
        // Since version 66, a prefix is a distance; 0 for none.
        let has_distances = table.get("prefixOffset").is_some();
        let prefix = match has_distances {
            true => "prefixOffset",
            false => "prefix",
        };
        let mut stacks: Vec<StackId> = Vec::new();
        let columns = (&["frame", prefix][..], 2);
        each_row(context.form, &table, columns, |index, row| {
            let frame = row.require("frame", "a frame index")?;
            let frame = frames[frame.index(frames.len(), "a frame index")?];
            let prefix = match row.get(prefix) {
                Some(distance) if has_distances => {
                    let expected = "the distance of an earlier stack";
                    let distance = distance.index(index + 1, expected)?;
                    (distance > 0).then(|| index - distance)
                }
                prefix => optional_index(prefix, index, "an earlier stack index")?,
            };
            let prefix = prefix.map(|prefix| stacks[prefix]);
            stacks.push(builder.profile.append_frame(prefix, frame));
            Ok(())
        })?;
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
    context: &Context,
    tables: &Object<'a, '_>,
    strings: &mut Strings<'a>,
) -> Result<Vec<Resource>, ReadError> {
    let mut resources = Vec::new();
    let Some(table) = tables.get("resourceTable") else {
        return Ok(resources);
    };
    let modules = &context.modules;
    let columns = (&["name", "type", "lib"][..], 1);
    each_row(
        context.form,
        &table.object("a table")?,
        columns,
        |_, row| {
            let kind = row
                .get("type")
                .map(|kind| kind.unsigned("the type of a resource"));
            let lib = optional_index(row.get("lib"), modules.len(), "a library index")?;
            resources.push(Resource {
                name: match row.get("name") {
                    Some(name) if name.text != "-1" => strings.id(&mut builder.profile, name)?,
                    // Before version 41, some resources had no name.
                    _ => builder.profile.intern(""),
                },
                is_library: kind.transpose()? == Some(LIBRARY_RESOURCE),
                module: lib.map(|lib| modules[lib]),
            });
            Ok(())
        },
    )?;
    Ok(resources)
}

fn read_funcs<'a>(
    builder: &mut ModelBuilder,
    context: &Context,
    tables: &Object<'a, '_>,
    strings: &mut Strings<'a>,
    files: &SourceFiles,
) -> Result<Vec<Func>, ReadError> {
    let columns = [
        "name",
        "isJS",
        "relevantForJS",
        "resource",
        "fileName",
        "source",
        "lineNumber",
        "columnNumber",
    ];
    let resources = read_resources(builder, context, tables, strings)?;
    let table = tables.require("funcTable", "a table")?.object("a table")?;
    let profile = &mut builder.profile;
    let mut funcs = Vec::new();
    each_row(context.form, &table, (&columns, 1), |_, row| {
        let flag = |column| row.get(column).map_or(Ok(false), |flag| flag.bool());
        let resource = row.get("resource");
        let resource = optional_index(resource, resources.len(), "a resource index")?;
        let name = row.require("name", "a string index")?;
        let name = strings.id(profile, name)?;
        let file = match (row.get("source"), row.get("fileName")) {
            (None, Some(name)) => Some(strings.id(profile, name)?),
            (source, _) => {
                let source = optional_index(source, files.0.len(), "a source index")?;
                source.map(|source| files.0[source])
            }
        };
        funcs.push(Func {
            name,
            is_js: flag("isJS")?,
            is_relevant_for_js: flag("relevantForJS")?,
            resource: resource.map(|index| resources[index]),
            file,
            line: position(row, "lineNumber")?,
            column: position(row, "columnNumber")?,
        });
        Ok(())
    })?;
    Ok(funcs)
}

/// Adds the native symbols to the model, and returns the model's index of each.
fn read_symbols<'a>(
    builder: &mut ModelBuilder,
    context: &Context,
    tables: &Object<'a, '_>,
    strings: &mut Strings<'a>,
) -> Result<Vec<u32>, ReadError> {
    let mut symbols = Vec::new();
    let Some(table) = tables.get("nativeSymbols") else {
        return Ok(symbols);
    };
    let modules = &context.modules;
    let columns = (&["libIndex", "address", "functionSize", "name"][..], 1);
    each_row(
        context.form,
        &table.object("a table")?,
        columns,
        |_, row| {
            let lib = row.require("libIndex", "a library index")?;
            let lib = lib.index(modules.len(), "a library index")?;
            let address = row.get("address");
            let address = address.map(|at| at.unsigned("an address relative to the library"));
            let size = row.get("functionSize");
            let size = size.map(|size| size.unsigned("the size of a function in bytes"));
            let symbol = NativeSymbol {
                module: modules[lib],
                address: address.transpose()?.unwrap_or(0),
                size: size.transpose()?,
                name: match row.get("name") {
                    Some(name) => strings.id(&mut builder.profile, name)?,
                    None => builder.profile.intern(""),
                },
            };
            symbols.push(builder.native_symbol(symbol));
            Ok(())
        },
    )?;
    Ok(symbols)
}

/// Adds the frames to the model.
fn read_frames<'a>(
    builder: &mut ModelBuilder,
    context: &Context,
    tables: &Object<'a, '_>,
    strings: &mut Strings<'a>,
    funcs: &[Func],
    symbols: &[u32],
) -> Result<Vec<FrameId>, ReadError> {
    let columns = [
        "func",
        "address",
        "inlineDepth",
        "nativeSymbol",
        "lib",
        "category",
        "subcategory",
        "line",
        "column",
        "innerWindowID",
        "implementation",
    ];
    let table = tables.require("frameTable", "a table")?.object("a table")?;
    let modules = &context.modules;
    let mut frames = Vec::new();
    each_row(context.form, &table, (&columns, 1), |_, row| {
        let func = row.require("func", "a function index")?;
        let func = &funcs[func.index(funcs.len(), "a function index")?];
        let address = row.get("address").filter(|address| address.text != "-1");
        let expected = "an address relative to the library, or -1";
        let address = address
            .map(|address| address.unsigned(expected))
            .transpose()?;
        let depth = row.get("inlineDepth");
        let depth = depth.map(|at| at.index(usize::from(u16::MAX) + 1, "an inline depth"));
        let symbol = row.get("nativeSymbol");
        let symbol = optional_index(symbol, symbols.len(), "a native symbol index")?;
        let lib = optional_index(row.get("lib"), modules.len(), "a library index")?;
        let window = row.get("innerWindowID");
        let window = window.map(|window| window.unsigned("the id of a page"));
        let implementation = row.get("implementation");
        let implementation = implementation.map(|name| strings.id(&mut builder.profile, name));
        let function = function_of_frame(
            builder,
            func,
            lib.map(|lib| modules[lib]),
            address.is_some() || symbol.is_some(),
        );
        let frame = Frame {
            function: builder.profile.intern_function(function),
            address,
            inline_depth: depth.transpose()?.unwrap_or(0) as u16,
            native_symbol: symbol.map(|symbol| symbols[symbol]),
            line: position(row, "line")?,
            column: position(row, "column")?,
            category: category_pair(
                &context.categories,
                row.get("category"),
                row.get("subcategory"),
            )?,
            inner_window_id: window.transpose()?.unwrap_or(0),
            implementation: implementation.transpose()?,
        };
        frames.push(builder.profile.intern_frame(&frame));
        Ok(())
    })?;
    Ok(frames)
}

/// Returns the function of a frame that may lie in a module, and may have an address or a symbol.
fn function_of_frame(
    builder: &mut ModelBuilder,
    func: &Func,
    module: Option<ModuleId>,
    is_at_address: bool,
) -> Function {
    let library = func.resource.filter(|resource| resource.is_library);
    let module = match library {
        _ if func.is_js => None,
        _ if module.is_some() => module,
        // Before version 70, and in imported profiles, a library may have no more than a name.
        Some(library) => Some(library.module.unwrap_or_else(|| {
            let name = builder.profile.text(library.name).to_owned();
            builder.unplaced_module(0, &name)
        })),
        None => None,
    };
    let kind = if func.is_js {
        FunctionKind::Script
    } else if module.is_some() || is_at_address {
        FunctionKind::Native
    } else if is_placeholder(builder.profile.text(func.name)) {
        FunctionKind::Structure
    } else {
        FunctionKind::Label
    };
    Function {
        name: func.name,
        kind,
        module,
        file: func.file,
        line: func.line,
        column: func.column,
        is_relevant_for_js: func.is_relevant_for_js,
    }
}
