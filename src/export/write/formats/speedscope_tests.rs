use serde_json::{Value, json};

use super::*;
use crate::export::options::SampleWeight;
use crate::export::test_profile::{ProfileBuilder, two_threads};

fn written(profile: &ProfileModel, options: &ExportOptions) -> Value {
    let mut out = Vec::new();
    write_speedscope(profile, options, &mut out).expect("a vector takes all");
    serde_json::from_slice(&out).expect("the output is JSON")
}

fn frame_names(file: &Value, profile: usize, sample: usize) -> Vec<&str> {
    let indices = file["profiles"][profile]["samples"][sample].as_array();
    let name = |index: &Value| {
        let index = index.as_u64().expect("an index") as usize;
        file["shared"]["frames"][index]["name"]
            .as_str()
            .expect("a name")
    };
    indices.expect("a sample").iter().map(name).collect()
}

#[test]
fn speedscope_has_a_profile_for_each_thread() {
    let file = written(&two_threads(), &ExportOptions::default());
    let profiles = file["profiles"].as_array().expect("profiles");
    let names: Vec<_> = profiles.iter().map(|profile| &profile["name"]).collect();
    assert_eq!(names, ["main", "worker"]);
    assert_eq!(file["activeProfileIndex"], 0);
    let main = &file["profiles"][0];
    assert_eq!(main["unit"], "nanoseconds");
    // The three samples that wait are one.
    let ms = 1_000_000;
    assert_eq!(main["weights"], json!([ms, ms, ms, ms, 3 * ms]));
    assert_eq!(main["endValue"], 7 * ms);
    assert_eq!(frame_names(&file, 0, 0), [""; 0]);
    assert_eq!(frame_names(&file, 0, 2), ["run", "parse", "alloc"]);
    assert_eq!(frame_names(&file, 1, 0), ["wait"]);
    assert_eq!(file["shared"]["frames"].as_array().map(Vec::len), Some(4));
}

#[test]
fn speedscope_of_cpu_time_leaves_out_samples_without_any() {
    let options = ExportOptions {
        weight: SampleWeight::Cpu,
        ..ExportOptions::default()
    };
    let file = written(&two_threads(), &options);
    assert_eq!(
        file["profiles"][0]["weights"],
        json!([1_650_000, 1_650_000])
    );
    assert_eq!(file["profiles"][1]["samples"], json!([]));
}

#[test]
fn speedscope_without_an_interval_counts_samples() {
    let mut profile = two_threads();
    profile.meta.interval_ns = 0;
    let file = written(&profile, &ExportOptions::default());
    assert_eq!(file["profiles"][1]["unit"], "none");
    assert_eq!(file["profiles"][1]["weights"], json!([2]));
}

#[test]
fn speedscope_frames_name_their_file_or_library() {
    let mut builder = ProfileBuilder::new();
    let thread = builder.thread("main");
    builder.sample(thread, 0, &["plain"]);
    builder.module = builder.add_module("libz.so");
    builder.sample(thread, 1, &["inflate"]);
    let file = written(&builder.profile, &ExportOptions::default());
    let expected = json!([{"name": "plain"}, {"name": "inflate", "file": "libz.so"}]);
    assert_eq!(file["shared"]["frames"], expected);
}
