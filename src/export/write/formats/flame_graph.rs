//! The hierarchy that d3-flame-graph draws, merged by name.

use std::io::{self, Write};

use crate::export::options::ExportOptions;
use crate::export::write::flame_tree::FlameTree;
use crate::json::JsonWriter;
use crate::model::ProfileModel;
use crate::util::FailureLatch;

/// Writes `{"name", "value", "children"}`, with the threads below the root.
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
    let mut writer = JsonWriter::for_job(out, FailureLatch::fallible());
    let root = match profile.meta.product.as_str() {
        "" => "all",
        product => product,
    };
    open_node(&mut writer, root, tree.total());
    let mut open_nodes = 0;
    for node in &tree.nodes {
        close_nodes(&mut writer, open_nodes - node.depth);
        open_node(&mut writer, tree.name(node.label), node.total);
        open_nodes = node.depth + 1;
        if writer.failed() {
            break;
        }
    }
    close_nodes(&mut writer, open_nodes + 1);
    writer.finish()
}

/// Writes a node up to the start of its children.
fn open_node(writer: &mut JsonWriter<'_>, name: &str, value: u64) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::sample_profile::two_threads;

    #[test]
    fn flame_graph_nests_functions_with_their_total_samples() {
        let mut out = Vec::new();
        write_flame_graph(&two_threads(), &ExportOptions::default(), &mut out)
            .expect("a vector takes all");
        let node = |name: &str, value: u64, children: &[serde_json::Value]| serde_json::json!({"name": name, "value": value, "children": children});
        let parse = node("parse", 3, &[node("alloc", 1, &[])]);
        let run = node("run", 6, &[parse, node("wait", 3, &[])]);
        let worker = node("worker", 2, &[node("wait", 2, &[])]);
        let expected = node("demo", 9, &[node("main", 7, &[run]), worker]);
        let written: serde_json::Value = serde_json::from_slice(&out).expect("the output is JSON");
        assert_eq!(written, expected);
    }

    #[test]
    fn flame_graph_of_no_samples_is_a_root() {
        let mut out = Vec::new();
        let profile = ProfileModel::default();
        write_flame_graph(&profile, &ExportOptions::default(), &mut out)
            .expect("a vector takes all");
        assert_eq!(out, br#"{"name":"all","value":0,"children":[]}"#);
    }
}
