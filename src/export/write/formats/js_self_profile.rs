//! Writes the trace of the JS Self-Profiling API: the samples of one thread.
//!
//! No entry is repeated. The format knows a function by its name and its definition, so two
//! functions in which both are equal become one frame.

use std::io;

use crate::export::options::ExportOptions;
use crate::export::write::formats::v8_profile::{ProfileNodes, Ticks};
use crate::json::JsonWriter;
use crate::model::{Function, FunctionKind, ProfileModel, UniqueStacks};
use crate::util::{NumberMap, UniqueList};

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
            .or_insert_with(|| stacks.intern_frame(&shown(profile.function(node.function))));
        let parent = node.parent.map(|parent| stack_of_node[parent.0 as usize]);
        stack_of_node.push(stacks.append_frame(parent, frame));
    }

    let mut json = JsonWriter::new(out);
    json.object(|json| {
        write_frames_and_resources(json, profile, stacks.frames());
        json.key("samples").array(|json| {
            for tick in ticks() {
                json.object(|json| {
                    if let Some(node) = nodes.node_of(tick.activity) {
                        let stack = stack_of_node[node.0 as usize];
                        json.key("stackId").unsigned(stack.into());
                    }
                    json.key("timestamp").signed_time_ms(tick.time_ns);
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

/// Returns what the format shows of a function: its name, and its definition if the file is known.
fn shown(function: &Function) -> Function {
    let is_defined = function.file.is_some();
    Function {
        file: function.file,
        line: function.line.filter(|_| is_defined),
        column: function.column.filter(|_| is_defined),
        ..Function::new(function.name, FunctionKind::Script)
    }
}

fn write_frames_and_resources(
    json: &mut JsonWriter<'_>,
    profile: &ProfileModel,
    frames: &[Function],
) {
    let mut resources = UniqueList::default();
    json.key("frames").array(|json| {
        for frame in frames {
            json.object(|json| {
                json.key("name").string(profile.text(frame.name));
                let resource = frame.file.map(|file| resources.index(&file));
                let numbers = [
                    ("resourceId", resource),
                    ("line", frame.line),
                    ("column", frame.column),
                ];
                for (key, number) in numbers {
                    if let Some(number) = number {
                        json.key(key).unsigned(number.into());
                    }
                }
            });
        }
    });
    json.key("resources").array(|json| {
        for file in &resources.elements {
            json.string(profile.text(*file));
        }
    });
}

#[cfg(test)]
#[path = "js_self_profile_tests.rs"]
mod tests;
