use super::*;
use crate::export::options::SampleWeight;
use crate::export::test_profile::{ProfileBuilder, two_threads};

fn tree<'a>(profile: &'a ProfileModel, options: &ExportOptions) -> FlameTree<'a> {
    FlameTree::of(profile, options)
}

fn rows<'a>(tree: &'a FlameTree<'_>) -> Vec<(usize, &'a str, u64, u64)> {
    let row = |node: &FlameNode| (node.depth, tree.name(node.label), node.own, node.total);
    tree.nodes.iter().map(row).collect()
}

#[test]
fn nodes_have_their_own_and_total_samples() {
    let profile = two_threads();
    let tree = tree(&profile, &ExportOptions::default());
    let expected = [
        (0, "main", 1, 7),
        (1, "run", 0, 6),
        (2, "parse", 2, 3),
        (3, "alloc", 1, 1),
        (2, "wait", 3, 3),
        (0, "worker", 0, 2),
        (1, "wait", 2, 2),
    ];
    assert_eq!(rows(&tree), expected);
    assert_eq!((tree.total(), tree.unit), (9, FlameUnit::Samples));
}

#[test]
fn threads_and_functions_of_one_name_share_a_node() {
    let mut builder = ProfileBuilder::new();
    let (one, other) = (builder.thread("worker"), builder.thread("worker"));
    builder.sample(one, 0, &["work"]);
    builder.module = builder.add_module("liba.so");
    builder.sample(other, 0, &["work"]);
    let tree = tree(&builder.profile, &ExportOptions::default());
    assert_eq!(rows(&tree), [(0, "worker", 0, 2), (1, "work", 2, 2)]);
}

#[test]
fn run_loop_folded_starts_stacks_at_the_threads_own_code() {
    let mut builder = ProfileBuilder::new();
    let thread = builder.thread("worker");
    let run_loop = "std::sys::backtrace::__rust_begin_short_backtrace::<F, T>";
    builder.sample(thread, 0, &["start", run_loop, "work"]);
    builder.sample(thread, 1, &["start", run_loop]);
    let options = ExportOptions {
        folds_runtime: true,
        ..ExportOptions::default()
    };
    let expected = [(0, "worker", 1, 2), (1, "start", 0, 1), (1, "work", 1, 1)];
    let tree = tree(&builder.profile, &options);
    assert_eq!(rows(&tree), [expected[0], expected[2]]);
}

#[test]
fn cpu_counts_of_all_and_of_each_function_are_within_one_of_the_exact_time() {
    let mut builder = ProfileBuilder::new();
    let thread = builder.thread("main");
    let callers = ["a", "b", "c", "d", "e", "f", "g"];
    for (at, caller) in callers.into_iter().enumerate() {
        for name in ["hot", "hot", "cold", "hot", "hot"] {
            builder.cpu_sample(thread, at as i64, &[caller, name], 100_000);
        }
    }
    let options = ExportOptions {
        weight: SampleWeight::Cpu,
        ..ExportOptions::default()
    };
    let tree = tree(&builder.profile, &options);
    assert_eq!(tree.unit, FlameUnit::CpuIntervals(1_000_000));
    let own = |name: &str| -> u64 {
        let nodes = tree.nodes.iter();
        let nodes = nodes.filter(|node| tree.name(node.label) == name);
        nodes.map(|node| node.own).sum()
    };
    // 2.8 and 0.7 intervals, 3.5 in all.
    assert_eq!((own("hot"), own("cold"), tree.total()), (3, 1, 4));
}

#[test]
fn threads_of_several_processes_name_their_process() {
    let mut builder = ProfileBuilder::new();
    let thread = builder.thread("GeckoMain");
    builder.sample(thread, 0, &["run"]);
    builder.profile.processes[0].name = "Parent".to_owned();
    builder.profile.processes[0].pid = "7".to_owned();
    builder.profile.processes.push(Default::default());
    let tree = tree(&builder.profile, &ExportOptions::default());
    assert_eq!(rows(&tree)[0], (0, "GeckoMain (Parent 7)", 0, 1));
}

#[test]
fn deep_stack_needs_no_deep_recursion() {
    let mut builder = ProfileBuilder::new();
    let thread = builder.thread("main");
    builder.sample(thread, 0, &vec!["recurse"; 100_000]);
    let tree = tree(&builder.profile, &ExportOptions::default());
    assert_eq!(tree.nodes.len(), 100_001);
    assert!(tree.nodes.iter().all(|node| node.total == 1));
}
