//! The tables that all threads share: stacks, frames, functions and native symbols.

use crate::export::write::processed::columns::{column, constant_column, number_or_null};
use crate::export::write::processed::context::Context;
use crate::export::write::processed::resources::Resources;
use crate::export::write::processed::strings::Strings;
use crate::json::JsonWriter;
use crate::model::{Frame, FunctionId, FunctionKind, StackId};

pub(super) fn write_stack_table(json: &mut JsonWriter<'_>, context: &Context<'_>) {
    let Context { profile, rows, .. } = context;
    let stacks = || rows.stacks.iter().map(StackId);
    json.object(|json| {
        column(json, "frame", stacks(), |json, stack| {
            let (_, frame) = profile.stack(stack);
            json.unsigned(rows.frames.new_index(frame.0).into());
        });
        // How many rows above the stack its prefix is; 0 for an outermost frame.
        column(json, "prefixOffset", stacks(), |json, stack| {
            let prefix = rows.prefix(profile, stack);
            let offset = prefix.map_or(0, |prefix| rows.stack(stack) - rows.stack(prefix));
            json.unsigned(offset);
        });
        json.key("length").unsigned(rows.stacks.len() as u64);
    });
}

pub(super) fn write_frame_table(json: &mut JsonWriter<'_>, context: &Context<'_>) {
    let Context {
        profile,
        rows,
        libs,
        categories,
        ..
    } = context;
    let frames = || rows.frames(profile);
    let lib = |frame: &Frame| libs.of_frame(profile, frame);
    let or_minus_one = |json: &mut JsonWriter<'_>, number: Option<u64>| match number {
        Some(number) => json.unsigned(number),
        None => json.signed(-1),
    };
    json.object(|json| {
        // Addresses are relative to the library. Without one, the function's name has the address.
        column(json, "address", frames(), |json, frame| {
            or_minus_one(json, frame.address.filter(|_| lib(frame).is_some()));
        });
        column(json, "lib", frames(), |json, frame| {
            or_minus_one(json, lib(frame).map(u64::from));
        });
        column(json, "inlineDepth", frames(), |json, frame| {
            json.unsigned(frame.inline_depth.into());
        });
        column(json, "category", frames(), |json, frame| {
            number_or_null(json, categories.of_frame(frame).map(|pair| pair.category));
        });
        column(json, "subcategory", frames(), |json, frame| {
            number_or_null(
                json,
                categories.of_frame(frame).map(|pair| pair.subcategory),
            );
        });
        column(json, "func", frames(), |json, frame| {
            json.unsigned(rows.functions.new_index(frame.function.0).into());
        });
        column(json, "nativeSymbol", frames(), |json, frame| {
            let symbol = frame.native_symbol;
            number_or_null(json, symbol.map(|at| rows.native_symbols.new_index(at)));
        });
        column(json, "innerWindowID", frames(), |json, frame| {
            json.unsigned(frame.inner_window_id);
        });
        column(json, "line", frames(), |json, frame| {
            number_or_null(json, frame.line)
        });
        column(json, "column", frames(), |json, frame| {
            number_or_null(json, frame.column)
        });
        constant_column(json, "originalLocation", rows.frames.len(), "null");
        json.key("length").unsigned(rows.frames.len() as u64);
    });
}

/// Writes the table of functions, and those that only functions refer to.
pub(super) fn write_functions<'a>(
    json: &mut JsonWriter<'_>,
    context: &Context<'a>,
    strings: &mut Strings<'a>,
) {
    let Context { profile, rows, .. } = context;
    let resources = Resources::of(profile, &rows.functions);
    let ids = || rows.functions.iter().map(FunctionId);
    let functions = || ids().map(|id| profile.function(id));
    json.key("funcTable").object(|json| {
        json.key("name").array(|json| {
            for function in functions() {
                json.unsigned(strings.text(function.name));
            }
        });
        column(json, "isJS", functions(), |json, function| {
            json.bool(function.kind == FunctionKind::Script);
        });
        column(json, "relevantForJS", functions(), |json, function| {
            json.bool(function.is_relevant_for_js);
        });
        column(
            json,
            "resource",
            functions(),
            |json, function| match resources.resource_of(profile, function) {
                Some(resource) => json.unsigned(resource.into()),
                None => json.signed(-1),
            },
        );
        column(json, "source", functions(), |json, function| {
            number_or_null(json, function.file.map(|file| resources.source_of(file)));
        });
        column(json, "lineNumber", functions(), |json, function| {
            number_or_null(json, function.line);
        });
        column(json, "columnNumber", functions(), |json, function| {
            number_or_null(json, function.column);
        });
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

pub(super) fn write_native_symbols<'a>(
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
        column(json, "libIndex", symbols(), |json, symbol| {
            json.unsigned(libs.of_module(symbol.module).into());
        });
        column(json, "address", symbols(), |json, symbol| {
            json.unsigned(symbol.address)
        });
        json.key("name").array(|json| {
            for symbol in symbols() {
                json.unsigned(strings.text(symbol.name));
            }
        });
        column(json, "functionSize", symbols(), |json, symbol| {
            number_or_null(json, symbol.size);
        });
        json.key("length")
            .unsigned(rows.native_symbols.len() as u64);
    });
}
