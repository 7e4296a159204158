//! Writes the trace of the JS Self-Profiling API: the samples of one thread.
//!
//! No entry is repeated. The format knows a function by its name and its definition, so two
//! functions in which both are equal become one frame.

use std::collections::HashMap;
use std::io;

use crate::export::options::ExportOptions;
use crate::export::write::formats::profile_nodes::ProfileNodes;
use crate::export::write::formats::ticks::Ticks;
use crate::json::JsonWriter;
use crate::model::{FunctionId, ProfileModel, TextId, UniqueStacks};
use crate::util::{FailureLatch, NumberMap};

/// A function, as the format shows it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct JsFrame {
    name: TextId,
    definition: Option<Definition>,
}

/// The file in which a function is defined, and where.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Definition {
    file: TextId,
    line: Option<u32>,
    column: Option<u32>,
}

impl JsFrame {
    fn new(profile: &ProfileModel, function: FunctionId) -> Self {
        let function = profile.function(function);
        let definition = |file| Definition {
            file,
            line: function.line,
            column: function.column,
        };
        Self {
            name: function.name,
            definition: function.file.map(definition),
        }
    }
}

/// Writes the busiest thread of those that the options choose. Times are in ms since the profile's
/// start. A sample whose thread waited, or whose stack is unknown, has no `stackId`.
///
/// # Errors
/// The sink's first failure, or [`io::ErrorKind::InvalidInput`] if no thread is chosen.
pub(crate) fn write_js_self_profile(
    profile: &ProfileModel,
    options: &ExportOptions,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let thread = options.one_thread(profile, "a JS Self-Profiling trace")?;
    let ticks = || Ticks::new(profile, thread, options);
    let mut nodes = ProfileNodes::new(profile, options);
    for tick in ticks() {
        nodes.id_of(tick.activity);
    }
    let mut stacks = UniqueStacks::default();
    let mut frame_of_function: NumberMap<u32> = NumberMap::default();
    let mut stack_of_node: Vec<u32> = Vec::with_capacity(nodes.calls.nodes().len());
    for node in nodes.calls.nodes() {
        let frame = *frame_of_function
            .entry(node.function.0.into())
            .or_insert_with(|| stacks.intern_frame(&JsFrame::new(profile, node.function)));
        let parent = node.parent.map(|parent| stack_of_node[parent.0 as usize]);
        stack_of_node.push(stacks.append_frame(parent, frame));
    }

    let mut json = JsonWriter::for_job(out, FailureLatch::fallible());
    json.object(|json| {
        write_frames_and_resources(json, profile, stacks.frames());
        json.key("samples").array(|json| {
            for tick in ticks() {
                json.object(|json| {
                    if let Some(node) = nodes.node_of(tick.activity) {
                        let stack = stack_of_node[node.0 as usize];
                        json.key("stackId").unsigned(stack.into());
                    }
                    json.key("timestamp");
                    match u64::try_from(tick.time_ns) {
                        Ok(time_ns) => json.time_ms(time_ns),
                        Err(_) => json.float(tick.time_ns as f64 / 1e6),
                    }
                });
            }
        });
        json.key("stacks").array(|json| {
            for (parent, frame) in stacks.stacks() {
                json.object(|json| {
                    json.key("frameId").unsigned((*frame).into());
                    if let Some(parent) = parent {
                        json.key("parentId").unsigned((*parent).into());
                    }
                });
            }
        });
    });
    json.finish()
}

fn write_frames_and_resources(
    json: &mut JsonWriter<'_>,
    profile: &ProfileModel,
    frames: &[JsFrame],
) {
    let mut resources = Vec::new();
    let mut indices = HashMap::new();
    json.key("frames").array(|json| {
        for frame in frames {
            json.object(|json| {
                json.key("name").string(profile.text(frame.name));
                let Some(definition) = &frame.definition else {
                    return;
                };
                let index = *indices.entry(definition.file).or_insert_with(|| {
                    resources.push(definition.file);
                    resources.len() - 1
                });
                json.key("resourceId").unsigned(index as u64);
                if let Some(line) = definition.line {
                    json.key("line").unsigned(line.into());
                }
                if let Some(column) = definition.column {
                    json.key("column").unsigned(column.into());
                }
            });
        }
    });
    json.key("resources").array(|json| {
        for file in &resources {
            json.string(profile.text(*file));
        }
    });
}

#[cfg(test)]
#[path = "js_self_profile_tests.rs"]
mod tests;
