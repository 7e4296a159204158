//! The hierarchies that d3-flame-graph draws: of all threads, merged by name, and of one thread, in
//! the order of time.

use std::io::{self, Write};

use crate::export::options::ExportOptions;
use crate::export::write::flame_tree::FlameTree;
use crate::export::write::formats::v8_profile::{MicroClock, ProfileNodes, Ticks};
use crate::json::JsonWriter;
use crate::model::ProfileModel;

/// Writes the hierarchy of all threads that the options choose, merged by name:
/// `{"name", "value", "children"}`, with the threads below the root.
///
/// A value is the number of a node's samples with those of its children, as d3-flame-graph reads by
/// default, or after `selfValue(false)`. With
/// [`SampleWeight::Cpu`](crate::export::options::SampleWeight::Cpu), it is CPU time in multiples of
/// the interval.
pub(crate) fn write_flame_graph(
    profile: &ProfileModel,
    options: &ExportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let tree = FlameTree::of(profile, options);
    let mut writer = JsonWriter::new(out);
    let root = match profile.meta.product.as_str() {
        "" => "all",
        product => product,
    };
    open_merged_node(&mut writer, root, tree.total());
    let mut open_nodes = 0;
    for node in &tree.nodes {
        close_nodes(&mut writer, open_nodes - node.depth);
        open_merged_node(&mut writer, tree.name(node.label), node.total);
        open_nodes = node.depth + 1;
        if writer.failed() {
            break;
        }
    }
    close_nodes(&mut writer, open_nodes + 1);
    writer.finish()
}

/// Writes a node up to the start of its children.
fn open_merged_node(writer: &mut JsonWriter<'_>, name: &str, value: u64) {
    writer.open(false);
    writer.key("name").string(name);
    writer.key("value").unsigned(value);
    writer.key("children").open(true);
}

fn close_nodes(writer: &mut JsonWriter<'_>, count: usize) {
    for _ in 0..count {
        writer.close(true);
        writer.close(false);
    }
}

/// Writes the busiest thread of those that the options choose, in the order of time: what the npm
/// package `cpuprofile-to-flamegraph` makes of the `.cpuprofile` of the same thread, node for node.
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
        nodes: ProfileNodes::new(profile, options),
        writer: JsonWriter::new(out),
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
        None => graph.open_node(graph.nodes.ids().start),
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
    nodes: ProfileNodes<'a>,
    writer: JsonWriter<'b>,
    /// The last run's node and its callers, the outermost first.
    open: Vec<OpenNode>,
}

impl TimedGraph<'_, '_> {
    /// Adds a run of samples of one node.
    fn add(&mut self, id: u32, time_us: i64) {
        let path = std::iter::successors(Some(id), |id| self.nodes.parent_of(*id));
        let mut path: Vec<u32> = path.collect();
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
            nodes,
            writer,
            open,
        } = self;
        writer.open(false);
        writer.key("name").string(match nodes.name_of(id) {
            "" => "(anonymous function)",
            name => name,
        });
        writer.key("profileNode").object(|writer| {
            writer.key("id").unsigned(id.into());
            nodes.write_frame(writer, id);
        });
        if let Some(package) = package_of(nodes.url_of(id)) {
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

/// Returns the name of the npm package that a script belongs to: the folder in the last
/// `node_modules`.
fn package_of(url: &str) -> Option<&str> {
    let (_, path) = url.rsplit_once("/node_modules/")?;
    path.split_once('/').map(|(package, _)| package)
}

#[cfg(test)]
#[path = "d3_flame_graphs_tests.rs"]
mod tests;
