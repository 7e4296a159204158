//! The tables that all threads share: stacks, frames, functions with their resources and source
//! files, and native symbols.

use crate::export::write::processed::columns::{Strings, column, constant_column, numbers};
use crate::export::write::processed::context::{Context, Rows};
use crate::json::JsonWriter;
use crate::model::{Frame, Function, FunctionId, FunctionKind, ProfileModel, StackId, TextId};
use crate::util::UniqueList;

pub(crate) fn write_stack_table(json: &mut JsonWriter<'_>, context: &Context<'_>) {
    let Context { profile, rows, .. } = context;
    let stacks = || rows.stacks.iter().map(StackId);
    json.object(|json| {
        let frames = stacks().map(|stack| profile.stack(stack).1);
        let frames = frames.map(|frame| Some(rows.frames.new_index(frame.0)));
        numbers(json, "frame", frames);
        // How many rows above the stack its prefix is; 0 for an outermost frame.
        let offset = |stack| match rows.prefix(profile, stack) {
            Some(prefix) => rows.stack(stack) - rows.stack(prefix),
            None => 0,
        };
        numbers(
            json,
            "prefixOffset",
            stacks().map(|stack| Some(offset(stack))),
        );
        json.key("length").unsigned(rows.stacks.len() as u64);
    });
}

pub(crate) fn write_frame_table(json: &mut JsonWriter<'_>, context: &Context<'_>) {
    let Context {
        profile,
        rows,
        libs,
        categories,
        ..
    } = context;
    let frames = || rows.frames(profile);
    let lib = |frame: &Frame| libs.of_frame(profile, frame);
    json.object(|json| {
        // Addresses are relative to the library. Without one, the function's name has the address.
        let addresses = frames().map(|frame| frame.address.filter(|_| lib(frame).is_some()));
        column(json, "address", addresses, number_or_minus_one);
        column(json, "lib", frames().map(lib), number_or_minus_one);
        let depths = frames().map(|frame| Some(frame.inline_depth));
        numbers(json, "inlineDepth", depths);
        let pairs = || frames().map(|frame| categories.of_frame(frame));
        numbers(json, "category", pairs().map(|pair| Some(pair?.category)));
        numbers(
            json,
            "subcategory",
            pairs().map(|pair| Some(pair?.subcategory)),
        );
        let functions = frames().map(|frame| frame.function.0);
        let functions = functions.map(|function| Some(rows.functions.new_index(function)));
        numbers(json, "func", functions);
        let symbols = frames().map(|frame| frame.native_symbol);
        let symbols = symbols.map(|symbol| Some(rows.native_symbols.new_index(symbol?)));
        numbers(json, "nativeSymbol", symbols);
        let windows = frames().map(|frame| Some(frame.inner_window_id));
        numbers(json, "innerWindowID", windows);
        numbers(json, "line", frames().map(|frame| frame.line));
        numbers(json, "column", frames().map(|frame| frame.column));
        constant_column(json, "originalLocation", rows.frames.len(), "null");
        json.key("length").unsigned(rows.frames.len() as u64);
    });
}

/// Writes the table of functions, and those that only functions refer to.
pub(crate) fn write_functions<'a>(
    json: &mut JsonWriter<'_>,
    context: &Context<'a>,
    strings: &mut Strings<'a>,
) {
    let Context { profile, rows, .. } = context;
    let resources = Resources::of(profile, &rows.functions);
    let ids = || rows.functions.iter().map(FunctionId);
    let functions = || ids().map(|id| profile.function(id));
    json.key("funcTable").object(|json| {
        let names = functions().map(|function| Some(strings.text(function.name)));
        numbers(json, "name", names);
        column(json, "isJS", functions(), |json, function| {
            json.bool(function.kind == FunctionKind::Script);
        });
        column(json, "relevantForJS", functions(), |json, function| {
            json.bool(function.is_relevant_for_js);
        });
        let of_functions = || resources.of_functions.iter();
        let indices = of_functions().map(|(resource, _)| *resource);
        column(json, "resource", indices, number_or_minus_one);
        numbers(json, "source", of_functions().map(|(_, source)| *source));
        numbers(
            json,
            "lineNumber",
            functions().map(|function| function.line),
        );
        numbers(
            json,
            "columnNumber",
            functions().map(|function| function.column),
        );
        constant_column(json, "originalLocation", rows.functions.len(), "null");
        json.key("length").unsigned(rows.functions.len() as u64);
    });
    resources.write_resources(json.key("resourceTable"), strings);
    resources.write_sources(json.key("sources"), context, strings);
    // Positions that a source map tells. The model has none.
    json.key("sourceLocationTable").object(|json| {
        for key in ["source", "line", "column"] {
            json.key(key).array(|_| {});
        }
        json.key("length").unsigned(0);
    });
}

pub(crate) fn write_native_symbols<'a>(
    json: &mut JsonWriter<'_>,
    context: &Context<'a>,
    strings: &mut Strings<'a>,
) {
    let Context {
        profile,
        rows,
        libs,
        ..
    } = context;
    let symbols = || {
        let used = rows.native_symbols.iter();
        used.map(|at| &profile.native_symbols[at as usize])
    };
    json.object(|json| {
        let libs = symbols().map(|symbol| Some(libs.of_module(symbol.module)));
        numbers(json, "libIndex", libs);
        numbers(
            json,
            "address",
            symbols().map(|symbol| Some(symbol.address)),
        );
        let names = symbols().map(|symbol| Some(strings.text(symbol.name)));
        numbers(json, "name", names);
        numbers(json, "functionSize", symbols().map(|symbol| symbol.size));
        json.key("length")
            .unsigned(rows.native_symbols.len() as u64);
    });
}

fn number_or_minus_one(json: &mut JsonWriter<'_>, number: Option<impl Into<u64>>) {
    match number {
        Some(number) => json.unsigned(number.into()),
        None => json.signed(-1),
    }
}

/// The collection of code that a function belongs to: a library, the scripts of a web server or of
/// a browser extension, or one script.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Resource<'a> {
    /// The number of the type in the format.
    type_number: u64,
    /// The library's name, the origin of the scripts, or the URL of the script.
    name: &'a str,
    /// The host of the origin.
    host: Option<&'a str>,
}

impl<'a> Resource<'a> {
    fn of_function(profile: &'a ProfileModel, function: &Function) -> Option<Self> {
        let (type_number, name, host) = match function.kind {
            FunctionKind::Native => (1, profile.module(function.module?).name.as_str(), None),
            FunctionKind::Script => {
                let url = profile.text(function.file?);
                match host_of(url) {
                    Some((origin, host)) => (3, origin, Some(host)),
                    None => (5, url, None),
                }
            }
            FunctionKind::Label | FunctionKind::Structure => return None,
        };
        Some(Self {
            type_number,
            name,
            host,
        })
    }
}

/// Returns the origin and the host of a script of a web server or of a browser extension.
fn host_of(url: &str) -> Option<(&str, &str)> {
    let schemes = ["http://", "https://", "moz-extension://"];
    schemes.into_iter().find_map(|scheme| {
        let rest = url.strip_prefix(scheme)?;
        let host = rest.split(['/', '?', '#']).next().unwrap_or(rest);
        Some((&url[..scheme.len() + host.len()], host))
    })
}

/// The resources and source files of the written functions, in the order of their first use.
struct Resources<'a> {
    resources: Vec<Resource<'a>>,
    /// Paths or URLs.
    sources: Vec<TextId>,
    /// The indices of each function's resource and file.
    of_functions: Vec<(Option<u32>, Option<u32>)>,
}

impl<'a> Resources<'a> {
    fn of(profile: &'a ProfileModel, functions: &Rows) -> Self {
        let (mut resources, mut sources) = (UniqueList::default(), UniqueList::default());
        let of_functions = functions.iter().map(|id| {
            let function = profile.function(FunctionId(id));
            let resource = Resource::of_function(profile, function);
            let resource = resource.map(|resource| resources.index(&resource));
            (resource, function.file.map(|file| sources.index(&file)))
        });
        Self {
            of_functions: of_functions.collect(),
            resources: resources.elements,
            sources: sources.elements,
        }
    }

    fn write_resources(&self, json: &mut JsonWriter<'_>, strings: &mut Strings<'_>) {
        let resources = || self.resources.iter();
        json.object(|json| {
            let names = resources().map(|resource| Some(strings.other(resource.name)));
            numbers(json, "name", names);
            let hosts = resources().map(|resource| Some(strings.other(resource.host?)));
            numbers(json, "host", hosts);
            numbers(
                json,
                "type",
                resources().map(|resource| Some(resource.type_number)),
            );
            json.key("length").unsigned(self.resources.len() as u64);
        });
    }

    /// Writes the source files, with the texts that are known.
    fn write_sources(
        &self,
        json: &mut JsonWriter<'_>,
        context: &Context<'_>,
        strings: &mut Strings<'_>,
    ) {
        let text_of = |file| {
            let of_profile = context.profile.sources.get(file);
            let of_profile = of_profile.map(|text| &text.0);
            of_profile.or_else(|| context.options.sources.get(&file.0))
        };
        let length = self.sources.len();
        json.object(|json| {
            constant_column(json, "id", length, "null");
            let names = self.sources.iter().map(|file| Some(strings.text(*file)));
            numbers(json, "filename", names);
            // Where the file begins in a larger one: these are whole files.
            constant_column(json, "startLine", length, "1");
            constant_column(json, "startColumn", length, "1");
            constant_column(json, "sourceMapURL", length, "null");
            column(json, "content", self.sources.iter(), |json, file| {
                json.or_null(text_of(file), |json, text| json.string(text));
            });
            json.key("length").unsigned(length as u64);
        });
    }
}
