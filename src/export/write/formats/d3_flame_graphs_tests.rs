use serde_json::{Value, json};

use super::*;
use crate::export::test_profile::{ProfileBuilder, WAIT, two_threads};

fn written(profile: &ProfileModel, options: &ExportOptions) -> Value {
    let mut out = Vec::new();
    write_timed_flame_graph(profile, options, &mut out).expect("a thread is chosen");
    serde_json::from_slice(&out).expect("the output is JSON")
}

/// Returns the name, value and execution time of a node, and of each of its children.
fn shape(node: &Value) -> Value {
    let children = node["children"].as_array().expect("children");
    let children: Vec<_> = children.iter().map(shape).collect();
    json!([node["name"], node["value"], node["executionTime"], children])
}

#[test]
fn timed_graph_merges_only_neighbors() {
    let mut builder = ProfileBuilder::new();
    let thread = builder.thread("main");
    builder.sample(thread, 10, &["run", "a"]);
    builder.sample(thread, 12, &["run", "a"]);
    builder.sample(thread, 15, &["run", "b"]);
    builder.sample(thread, 16, &[WAIT]);
    builder.sample(thread, 17, &["run", "a"]);
    builder.sample(thread, 18, &["run"]);
    builder.sample(thread, 19, &["run", "a"]);
    builder.sample(thread, 20, &[]);
    let graph = written(&builder.profile, &ExportOptions::default());
    let leaf = |name: &str, us: i64| json!([name, us, us, []]);
    let run = |children: &[Value], us: i64| json!(["run", 0, us, children]);
    let expected = json!([
        "(root)",
        0,
        10_000,
        [
            run(&[leaf("a", 2000), leaf("b", 3000)], 5000),
            leaf("(idle)", 1000),
            run(&[leaf("a", 1000)], 1000),
            leaf("run", 1000),
            run(&[leaf("a", 1000)], 1000),
            leaf("(program)", 1000),
        ]
    ]);
    assert_eq!(shape(&graph), expected);
}

#[test]
fn timed_graph_identifies_nodes_as_the_cpuprofile_does() {
    let mut builder = ProfileBuilder::new();
    let thread = builder.thread("main");
    builder.module = builder.add_module("demo");
    builder.sample(thread, 0, &["run", "work"]);
    let graph = written(&builder.profile, &ExportOptions::default());
    let work = &graph["children"][0]["children"][0];
    let expected = json!({
        "id": 6,
        "callFrame": {
            "functionName": "work",
            "scriptId": "1",
            "url": "/lib/demo",
            "lineNumber": -1,
            "columnNumber": -1,
        },
    });
    assert_eq!(work["profileNode"], expected);
    assert_eq!(work.get("nodeModule"), None);
}

#[test]
fn timed_graph_of_no_samples_is_a_root() {
    let mut builder = ProfileBuilder::new();
    builder.thread("main");
    let graph = written(&builder.profile, &ExportOptions::default());
    assert_eq!(shape(&graph), json!(["(root)", 0, 0, []]));
}

#[test]
fn timed_graph_without_threads_is_an_error() {
    let profile = ProfileModel::default();
    let result = write_timed_flame_graph(&profile, &ExportOptions::default(), &mut Vec::new());
    assert_eq!(
        result.map_err(|error| error.kind()),
        Err(io::ErrorKind::InvalidInput)
    );
}

#[test]
fn npm_package_is_the_folder_in_the_last_node_modules() {
    let package = package_of("file:///a/node_modules/x/node_modules/@scope/name/index.js");
    assert_eq!(package, Some("@scope"));
    assert_eq!(package_of("/a/node_modules/index.js"), None);
    assert_eq!(package_of("/a/src/main.rs"), None);
}

#[test]
fn flame_graph_nests_functions_with_their_total_samples() {
    let mut out = Vec::new();
    write_flame_graph(&two_threads(), &ExportOptions::default(), &mut out)
        .expect("a vector takes all");
    let node = |name: &str, value: u64, children: &[Value]| json!({"name": name, "value": value, "children": children});
    let parse = node("parse", 3, &[node("alloc", 1, &[])]);
    let run = node("run", 6, &[parse, node("wait", 3, &[])]);
    let worker = node("worker", 2, &[node("wait", 2, &[])]);
    let expected = node("demo", 9, &[node("main", 7, &[run]), worker]);
    let written: Value = serde_json::from_slice(&out).expect("the output is JSON");
    assert_eq!(written, expected);
}

#[test]
fn flame_graph_of_no_samples_is_a_root() {
    let mut out = Vec::new();
    let profile = ProfileModel::default();
    write_flame_graph(&profile, &ExportOptions::default(), &mut out).expect("a vector takes all");
    assert_eq!(out, br#"{"name":"all","value":0,"children":[]}"#);
}
