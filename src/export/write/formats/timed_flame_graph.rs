//! The hierarchy that d3-flame-graph draws, in the order of time: what the npm package
//! `cpuprofile-to-flamegraph` makes of the `.cpuprofile` of the same thread, node for node.

use std::io::{self, Write};

use crate::export::options::ExportOptions;
use crate::export::write::formats::profile_nodes::{FIXED_NODES, ProfileNodes, ROOT, id_of_call};
use crate::export::write::formats::ticks::{MicroClock, Ticks};
use crate::json::JsonWriter;
use crate::model::{FunctionId, NodeId, ProfileModel};
use crate::util::FailureLatch;

/// Writes the busiest thread of those that the options choose.
///
/// Neighboring samples of the same function are one node. Its `value` is their time in µs, and a
/// caller's `value` is 0: set `selfValue(true)`. Callers that are equal and follow each other are
/// one node. `executionTime` is the time of a node with its children. `profileNode` has the `id` and
/// the `callFrame` of the node in the `.cpuprofile`. A function of an npm package has the package's
/// name as `nodeModule`.
///
/// # Errors
/// The sink's first failure, or [`io::ErrorKind::InvalidInput`] if no thread is chosen.
pub(crate) fn write_timed_flame_graph(
    profile: &ProfileModel,
    options: &ExportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let thread = options.one_thread(profile, "a flame graph by time")?;
    let mut graph = TimedGraph {
        profile,
        nodes: ProfileNodes::new(profile, options),
        writer: JsonWriter::for_job(out, FailureLatch::fallible()),
        open: Vec::new(),
    };
    let ticks = Ticks::new(profile, thread, options);
    let mut clock = None;
    // The last node, its time so far, and the end of that time.
    let mut run: Option<(u32, i64, i64)> = None;
    for tick in ticks {
        let id = graph.nodes.id_of(tick.activity);
        let now_us = clock
            .get_or_insert_with(|| MicroClock::new(tick.time_ns))
            .us(tick.time_ns);
        run = Some(match run {
            Some((last, time_us, end_us)) if last == id => (id, time_us + now_us - end_us, now_us),
            Some((last, time_us, end_us)) => {
                graph.add(last, time_us);
                (id, now_us - end_us, now_us)
            }
            // Time begins at the first sample.
            None => (id, 0, now_us),
        });
        if graph.writer.failed() {
            break;
        }
    }
    match run {
        Some((last, time_us, _)) => graph.add(last, time_us),
        None => graph.open_node(ROOT),
    }
    graph.close_below(0);
    graph.writer.finish()
}

/// A node whose end is not written yet.
struct OpenNode {
    id: u32,
    /// Time in the node itself.
    value_us: i64,
    /// Time in the node and in its children so far.
    total_us: i64,
}

struct TimedGraph<'a, 'b> {
    profile: &'a ProfileModel,
    nodes: ProfileNodes<'a>,
    writer: JsonWriter<'b>,
    /// The last run's node and its callers, the outermost first.
    open: Vec<OpenNode>,
}

impl TimedGraph<'_, '_> {
    /// Adds a run of samples of one node.
    fn add(&mut self, id: u32, time_us: i64) {
        let call = call_of_id(id);
        let callers = self.nodes.calls.path(call).map(id_of_call);
        let mut path: Vec<u32> = callers.collect();
        if call.is_none() {
            path.push(id);
        }
        path.push(ROOT);
        path.reverse();
        // A node with time of its own is never extended, neither by a run nor by callers.
        let callers = self.open.len().min(path.len()).saturating_sub(1);
        let same = self.open[..callers].iter().zip(&path);
        let same = same.take_while(|(open, id)| open.id == **id).count();
        self.close_below(same);
        for id in &path[same..] {
            self.open_node(*id);
        }
        if let Some(last) = self.open.last_mut() {
            last.value_us = time_us;
            last.total_us = time_us;
        }
    }

    /// Writes a node up to the start of its children.
    fn open_node(&mut self, id: u32) {
        let Self {
            profile,
            nodes,
            writer,
            open,
        } = self;
        let function = call_of_id(id).map(|call| nodes.calls.get(call).function);
        let fixed = FIXED_NODES.iter().find(|(fixed, _)| *fixed == id);
        let name = match function {
            Some(function) => profile.function_name(function),
            None => fixed.map_or("", |(_, name)| name),
        };
        writer.open(false);
        writer.key("name").string(match name {
            "" => "(anonymous function)",
            name => name,
        });
        writer.key("profileNode").object(|writer| {
            writer.key("id").unsigned(id.into());
            match function {
                Some(function) => nodes.write_frame(writer, function),
                None => ProfileNodes::write_fixed_frame(writer, name),
            }
        });
        let url = function.map_or("", |function| url_of(profile, function));
        if let Some(package) = package_of(url) {
            writer.key("nodeModule").string(package);
        }
        writer.key("children").open(true);
        open.push(OpenNode {
            id,
            value_us: 0,
            total_us: 0,
        });
    }

    /// Writes the ends of all nodes but the first `kept`.
    fn close_below(&mut self, kept: usize) {
        while self.open.len() > kept
            && let Some(node) = self.open.pop()
        {
            self.writer.close(true);
            self.writer.key("value").signed(node.value_us);
            self.writer.key("executionTime").signed(node.total_us);
            self.writer.close(false);
            if let Some(caller) = self.open.last_mut() {
                caller.total_us += node.total_us;
            }
        }
    }
}

/// Returns the call node of an id; `None` for a node that is not a function.
fn call_of_id(id: u32) -> Option<NodeId> {
    id.checked_sub(id_of_call(NodeId(0))).map(NodeId)
}

/// Returns the URL that a node of the function has; an empty text for none.
fn url_of(profile: &ProfileModel, function: FunctionId) -> &str {
    let function = profile.function(function);
    let module = |module| profile.module(module).path.as_str();
    let file = function.file.map(|file| profile.text(file));
    file.or_else(|| function.module.map(module))
        .unwrap_or_default()
}

/// Returns the name of the npm package that a script belongs to: the folder in the last
/// `node_modules`.
fn package_of(url: &str) -> Option<&str> {
    let (_, path) = url.rsplit_once("/node_modules/")?;
    path.split_once('/').map(|(package, _)| package)
}

#[cfg(test)]
#[path = "timed_flame_graph_tests.rs"]
mod tests;
