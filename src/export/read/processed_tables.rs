//! Reads the tables of frames and stacks of the processed format.

use crate::export::read::builder::{ModelBuilder, Strings};
use crate::export::read::context::Context;
use crate::export::read::table::{Form, TableRow, each_row};
use crate::export::read::value::{Object, Value};
use crate::model::{
    Frame, FrameId, Function, FunctionKind, ModuleId, NativeSymbol, SourceText, StackId, TextId,
    is_placeholder,
};
use crate::types::ReadError;

/// The type of a resource that is a library.
const LIBRARY_RESOURCE: u64 = 1;

/// Reads the paths of the table of sources, and adds the sources' contents to the model. Before
/// version 58, functions had the path itself.
pub(crate) fn read_sources<'a>(
    builder: &mut ModelBuilder,
    shared: &Object<'a, '_>,
    strings: &mut Strings<'a>,
) -> Result<Vec<TextId>, ReadError> {
    let mut paths = Vec::new();
    let Some(sources) = shared.optional_table("sources")? else {
        return Ok(paths);
    };
    let profile = &mut builder.profile;
    let columns = (&["filename", "content"][..], 1);
    each_row(Form::Processed, &sources, columns, |_, row| {
        let path = strings.id(profile, row.require("filename", "a string index")?)?;
        let content = row.read("content", |text| {
            text.string("the content of a source file")
        })?;
        if let Some(content) = content {
            let text = SourceText(content.into_owned());
            profile.sources.insert(path, text);
        }
        paths.push(path);
        Ok(())
    })?;
    Ok(paths)
}

/// The model's stack for each of the stack table.
pub(crate) struct StackTable(Vec<StackId>);

impl StackTable {
    /// Reads the tables of a thread, or those of all threads. `files` are the paths of the sources.
    pub(crate) fn read<'a>(
        builder: &mut ModelBuilder,
        context: &Context,
        tables: &Object<'a, '_>,
        strings: &mut Strings<'a>,
        files: &[TextId],
    ) -> Result<Self, ReadError> {
        let mut reader = TableReader {
            builder,
            context,
            tables,
            strings,
        };
        let funcs = reader.funcs(files)?;
        let symbols = reader.symbols()?;
        let frames = reader.frames(&funcs, &symbols)?;
        let table = tables.table("stackTable")?;
        // Since version 66, a prefix is a distance; 0 for none.
        let has_distances = table.get("prefixOffset").is_some();
        let prefix = match has_distances {
            true => "prefixOffset",
            false => "prefix",
        };
        let mut stacks: Vec<StackId> = Vec::new();
        let columns = (&["frame", prefix][..], 2);
        each_row(Form::Processed, &table, columns, |index, row| {
            let frame = row.require("frame", "a frame index")?;
            let frame = frames[frame.index(frames.len(), "a frame index")?];
            let prefix = match row.get(prefix) {
                Some(distance) if has_distances => {
                    let expected = "the distance of an earlier stack";
                    let distance = distance.index(index + 1, expected)?;
                    (distance > 0).then(|| index - distance)
                }
                _ => optional_index(row, prefix, index, "an earlier stack index")?,
            };
            let prefix = prefix.map(|prefix| stacks[prefix]);
            stacks.push(reader.builder.profile.append_frame(prefix, frame));
            Ok(())
        })?;
        Ok(Self(stacks))
    }

    /// Returns the model's stack for an index of the stack table.
    pub(crate) fn stack(&self, index: &Value<'_, '_>) -> Result<StackId, ReadError> {
        let index = index.index(self.0.len(), "a stack index")?;
        Ok(self.0[index])
    }
}

/// Returns an index of a list; `None` for −1, which some columns use for a missing element.
fn optional_index(
    row: &TableRow<'_, '_>,
    column: &str,
    length: usize,
    noun: &str,
) -> Result<Option<usize>, ReadError> {
    let value = row.get(column).filter(|value| value.text != "-1");
    value.map(|value| value.index(length, noun)).transpose()
}

/// Reads the tables that the table of stacks refers to, and those that these refer to.
struct TableReader<'r, 'a, 'p> {
    builder: &'r mut ModelBuilder,
    context: &'r Context,
    tables: &'r Object<'a, 'p>,
    strings: &'r mut Strings<'a>,
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

impl TableReader<'_, '_, '_> {
    fn resources(&mut self) -> Result<Vec<Resource>, ReadError> {
        let mut resources = Vec::new();
        let Some(table) = self.tables.optional_table("resourceTable")? else {
            return Ok(resources);
        };
        let modules = &self.context.modules;
        let columns = (&["name", "type", "lib"][..], 1);
        each_row(Form::Processed, &table, columns, |_, row| {
            let lib = optional_index(row, "lib", modules.len(), "a library index")?;
            let profile = &mut self.builder.profile;
            let name = match row.get("name") {
                Some(name) if name.text != "-1" => self.strings.id(profile, name)?,
                // Before version 41, some resources had no name.
                _ => profile.intern(""),
            };
            let kind = row.read("type", |kind| kind.unsigned("the type of a resource"))?;
            resources.push(Resource {
                name,
                is_library: kind == Some(LIBRARY_RESOURCE),
                module: lib.map(|lib| modules[lib]),
            });
            Ok(())
        })?;
        Ok(resources)
    }

    fn funcs(&mut self, files: &[TextId]) -> Result<Vec<Func>, ReadError> {
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
        let resources = self.resources()?;
        let table = self.tables.table("funcTable")?;
        let profile = &mut self.builder.profile;
        let mut funcs = Vec::new();
        each_row(Form::Processed, &table, (&columns, 1), |_, row| {
            let resource = optional_index(row, "resource", resources.len(), "a resource index")?;
            let name = row.require("name", "a string index")?;
            let name = self.strings.id(profile, name)?;
            let file = match (row.get("source"), row.get("fileName")) {
                (None, Some(name)) => Some(self.strings.id(profile, name)?),
                _ => {
                    let source = optional_index(row, "source", files.len(), "a source index")?;
                    source.map(|source| files[source])
                }
            };
            funcs.push(Func {
                name,
                is_js: row.read("isJS", Value::bool)?.unwrap_or(false),
                is_relevant_for_js: row.read("relevantForJS", Value::bool)?.unwrap_or(false),
                resource: resource.map(|index| resources[index]),
                file,
                line: row.position("lineNumber")?,
                column: row.position("columnNumber")?,
            });
            Ok(())
        })?;
        Ok(funcs)
    }

    /// Adds the native symbols to the model, and returns the model's index of each.
    fn symbols(&mut self) -> Result<Vec<u32>, ReadError> {
        let mut symbols = Vec::new();
        let Some(table) = self.tables.optional_table("nativeSymbols")? else {
            return Ok(symbols);
        };
        let modules = &self.context.modules;
        let columns = (&["libIndex", "address", "functionSize", "name"][..], 1);
        each_row(Form::Processed, &table, columns, |_, row| {
            let lib = row.require("libIndex", "a library index")?;
            let lib = lib.index(modules.len(), "a library index")?;
            let number = |column, expected| row.read(column, |number| number.unsigned(expected));
            let address = number("address", "an address relative to the library")?;
            let profile = &mut self.builder.profile;
            let symbol = NativeSymbol {
                module: modules[lib],
                address: address.unwrap_or(0),
                size: number("functionSize", "the size of a function in bytes")?,
                name: match row.get("name") {
                    Some(name) => self.strings.id(profile, name)?,
                    None => profile.intern(""),
                },
            };
            symbols.push(self.builder.native_symbol(symbol));
            Ok(())
        })?;
        Ok(symbols)
    }

    /// Adds the frames to the model.
    fn frames(&mut self, funcs: &[Func], symbols: &[u32]) -> Result<Vec<FrameId>, ReadError> {
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
        let table = self.tables.table("frameTable")?;
        let modules = &self.context.modules;
        let mut frames = Vec::new();
        each_row(Form::Processed, &table, (&columns, 1), |_, row| {
            let func = row.require("func", "a function index")?;
            let func = &funcs[func.index(funcs.len(), "a function index")?];
            let address = row.get("address").filter(|address| address.text != "-1");
            let expected = "an address relative to the library, or -1";
            let address = address
                .map(|address| address.unsigned(expected))
                .transpose()?;
            let symbol =
                optional_index(row, "nativeSymbol", symbols.len(), "a native symbol index")?;
            let lib = optional_index(row, "lib", modules.len(), "a library index")?;
            let module = lib.map(|lib| modules[lib]);
            let is_at_address = address.is_some() || symbol.is_some();
            let function = func.of_frame(self.builder, module, is_at_address);
            let depth = row.read("inlineDepth", |depth| {
                depth.index(usize::from(u16::MAX) + 1, "an inline depth")
            })?;
            let profile = &mut self.builder.profile;
            let frame = Frame {
                function: profile.intern_function(function),
                address,
                inline_depth: depth.unwrap_or(0) as u16,
                native_symbol: symbol.map(|symbol| symbols[symbol]),
                line: row.position("line")?,
                column: row.position("column")?,
                category: self
                    .context
                    .category(row.get("category"), row.get("subcategory"))?,
                inner_window_id: row
                    .read("innerWindowID", |id| id.unsigned("the id of a page"))?
                    .unwrap_or(0),
                implementation: row
                    .read("implementation", |name| self.strings.id(profile, *name))?,
            };
            frames.push(profile.intern_frame(&frame));
            Ok(())
        })?;
        Ok(frames)
    }
}

impl Func {
    /// Returns the function of a frame that may lie in a module, and may have an address or a symbol.
    fn of_frame(
        &self,
        builder: &mut ModelBuilder,
        module: Option<ModuleId>,
        is_at_address: bool,
    ) -> Function {
        let library = self.resource.filter(|resource| resource.is_library);
        let module = match library {
            _ if self.is_js => None,
            _ if module.is_some() => module,
            // Before version 70, and in imported profiles, a library may have no more than a name.
            Some(library) => Some(library.module.unwrap_or_else(|| {
                let name = builder.profile.text(library.name).to_owned();
                builder.unplaced_module(0, &name)
            })),
            None => None,
        };
        let kind = if self.is_js {
            FunctionKind::Script
        } else if module.is_some() || is_at_address {
            FunctionKind::Native
        } else if is_placeholder(builder.profile.text(self.name)) {
            FunctionKind::Structure
        } else {
            FunctionKind::Label
        };
        Function {
            name: self.name,
            kind,
            module,
            file: self.file,
            line: self.line,
            column: self.column,
            is_relevant_for_js: self.is_relevant_for_js,
        }
    }
}
