//! speedscope's own JSON, with a `sampled` profile for each thread.

use std::io::{self, Write};

use crate::export::options::ExportOptions;
use crate::export::run_loops::is_run_loop;
use crate::export::write::flame_tree::thread_label;
use crate::json::JsonWriter;
use crate::model::{CallNodes, FunctionId, NodeId, ProfileModel, Thread, WeightUnit};

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

/// Writes the threads that the options choose.
///
/// Weights are in ns, or in the unit of the thread's own weights. They are plain counts if the
/// profile has neither an interval nor CPU times. Neighboring samples of the same functions are
/// joined, because the viewer draws them as one block.
pub(crate) fn write_speedscope(
    profile: &ProfileModel,
    options: &ExportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let threads = options.threads(profile);
    let mut writer = JsonWriter::new(out);
    writer.open(false);
    writer.key("$schema").string(SCHEMA);
    let exporter = concat!("gekkota@", env!("CARGO_PKG_VERSION"));
    writer.key("exporter").string(exporter);
    writer.key("name").string(&profile.meta.product);
    let busiest = options.busiest_thread(profile);
    let active = threads.iter().position(|index| Some(*index) == busiest);
    writer
        .key("activeProfileIndex")
        .unsigned(active.unwrap_or(0) as u64);
    writer.key("profiles").open(true);
    let mut frames = FrameTable::new(profile.functions().len());
    for index in threads {
        let thread = &profile.threads[index];
        write_thread(&mut writer, profile, options, thread, &mut frames);
    }
    writer.close(true);
    writer.key("shared").object(|writer| {
        writer.key("frames").array(|writer| {
            for function in frames.functions {
                write_frame(writer, profile, function);
            }
        });
    });
    writer.close(false);
    writer.finish()
}

/// The functions that samples have used so far.
struct FrameTable {
    functions: Vec<FunctionId>,
    /// The index of each function in `functions`, plus one; 0 for none.
    indices: Vec<u32>,
}

impl FrameTable {
    fn new(function_count: usize) -> Self {
        Self {
            functions: Vec::new(),
            indices: vec![0; function_count],
        }
    }

    fn index_of(&mut self, function: FunctionId) -> u64 {
        let index = &mut self.indices[function.0 as usize];
        if *index == 0 {
            self.functions.push(function);
            *index = self.functions.len() as u32;
        }
        u64::from(*index) - 1
    }
}

fn write_frame(writer: &mut JsonWriter<'_>, profile: &ProfileModel, id: FunctionId) {
    let function = profile.function(id);
    writer.object(|writer| {
        writer.key("name").string(profile.text(function.name));
        // Without a source file, the library says where the function is.
        let module = || function.module.map(|id| profile.module(id).name.as_str());
        let file = function.file.map(|file| profile.text(file));
        if let Some(file) = file.or_else(module) {
            writer.key("file").string(file);
        }
        if let Some(line) = function.line {
            writer.key("line").unsigned(line.into());
        }
        if let Some(column) = function.column {
            writer.key("col").unsigned(column.into());
        }
    });
}

fn write_thread(
    writer: &mut JsonWriter<'_>,
    profile: &ProfileModel,
    options: &ExportOptions,
    thread: &Thread,
    frames: &mut FrameTable,
) {
    let calls = CallNodes::of(profile, thread);
    let samples = &thread.samples;
    let (unit, is_in_ns) = match samples.weight_unit {
        _ if options.counts_cpu(profile) => ("nanoseconds", true),
        WeightUnit::Samples if profile.meta.interval_ns > 0 => ("nanoseconds", true),
        WeightUnit::Samples => ("none", false),
        WeightUnit::Milliseconds => ("milliseconds", false),
        WeightUnit::Bytes => ("bytes", false),
    };
    writer.open(false);
    writer.key("type").string("sampled");
    writer.key("name").string(&thread_label(profile, thread));
    writer.key("unit").string(unit);
    writer.key("samples").open(true);
    let mut weights: Vec<u64> = Vec::new();
    let mut path: Vec<u64> = Vec::new();
    let mut write_run = |writer: &mut JsonWriter<'_>, (node, weight): (Option<NodeId>, u64)| {
        if weight == 0 {
            return;
        }
        weights.push(weight);
        path.clear();
        for node in calls.path(node) {
            let function = calls.get(node).function;
            if options.folds_runtime && is_run_loop(profile, function) {
                break;
            }
            path.push(frames.index_of(function));
        }
        writer.array(|writer| path.iter().rev().for_each(|frame| writer.unsigned(*frame)));
    };
    // The functions of the last samples, and the sum of these samples' weights.
    let mut run = (None, 0_u64);
    for row in options.rows(profile, thread) {
        let node = row.sample.stack.and_then(|stack| calls.node_of(stack));
        let weight = match is_in_ns {
            true => options.weight_ns(profile, samples, &row),
            // The viewer refuses weights below 0.
            false => row.sample.weight.max(0).unsigned_abs(),
        };
        if node == run.0 {
            run.1 = run.1.saturating_add(weight);
        } else {
            write_run(writer, std::mem::replace(&mut run, (node, weight)));
        }
        if writer.failed() {
            return;
        }
    }
    write_run(writer, run);
    writer.close(true);
    let sum = weights.iter().copied().fold(0, u64::saturating_add);
    writer.key("weights").array(|writer| {
        weights.iter().for_each(|weight| writer.unsigned(*weight));
    });
    writer.key("startValue").unsigned(0);
    writer.key("endValue").unsigned(sum);
    writer.close(false);
}

#[cfg(test)]
#[path = "speedscope_tests.rs"]
mod tests;
