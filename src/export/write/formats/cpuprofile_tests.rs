use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::export::write::formats::test_chrome_profile::{
    busy_profile, empty_profile, push_sample, self_and_total,
};

fn written(profile: &ProfileModel, options: &ExportOptions) -> Value {
    let mut out = Vec::new();
    write_cpuprofile(profile, options, &mut out).expect("written");
    serde_json::from_slice(&out).expect("JSON")
}

#[test]
fn small_profile_is_written_as_by_v8() {
    let mut profile = empty_profile();
    push_sample(&mut profile, -1_000_000, Some(&["main@1"]));
    push_sample(&mut profile, 0, Some(&["main@1", "memcpy"]));
    push_sample(&mut profile, 1_000_000, Some(&["main@1", "wait"]));
    let frame = |name: &str, script: &str, url: &str, line: i64, column: i64| {
        json!({"functionName": name, "scriptId": script, "url": url, "lineNumber": line,
            "columnNumber": column})
    };
    let expected = json!({
        "nodes": [
            {"id": 1, "callFrame": frame("(root)", "0", "", -1, -1), "hitCount": 0,
                "children": [2, 3, 4, 5]},
            {"id": 2, "callFrame": frame("(program)", "0", "", -1, -1), "hitCount": 0,
                "children": []},
            {"id": 3, "callFrame": frame("(idle)", "0", "", -1, -1), "hitCount": 1,
                "children": []},
            {"id": 4, "callFrame": frame("(program)", "0", "", -1, -1), "hitCount": 0,
                "children": []},
            {"id": 5, "callFrame": frame("main", "1", "/src/main.rs", 0, 3), "hitCount": 1,
                "children": [6], "positionTicks": [{"line": 3, "ticks": 1}]},
            {"id": 6, "callFrame": frame("memcpy", "0", "", -1, -1), "hitCount": 1,
                "children": []},
        ],
        "startTime": 0, "endTime": 3000, "samples": [5, 6, 3], "timeDeltas": [0, 1000, 1000],
    });
    assert_eq!(written(&profile, &ExportOptions::default()), expected);
}

#[test]
fn self_and_total_ticks_agree_with_the_samples() {
    let profile = busy_profile(2_000);
    let file = written(&profile, &ExportOptions::default());
    let mut counts = BTreeMap::<String, (u64, u64)>::new();
    count(&file["nodes"], 1, &mut Vec::new(), &mut counts);
    counts.remove("(root)");
    assert_eq!(counts, self_and_total(&profile));
    let sum: u64 = counts.values().map(|(own, _)| own).sum();
    assert_eq!(sum, 2_000);
}

/// Adds the ticks of a node and of what it calls. Returns their number.
fn count<'a>(
    nodes: &'a Value,
    id: u64,
    callers: &mut Vec<&'a str>,
    counts: &mut BTreeMap<String, (u64, u64)>,
) -> u64 {
    let node = &nodes[id as usize - 1];
    let name = node["callFrame"]["functionName"].as_str().expect("a name");
    let own = node["hitCount"].as_u64().expect("a number");
    let is_outermost = !callers.contains(&name);
    callers.push(name);
    let children = node["children"].as_array().expect("a list").iter();
    let inner = children.map(|child| count(nodes, child.as_u64().expect("an id"), callers, counts));
    let total = own + inner.sum::<u64>();
    callers.pop();
    if total > 0 {
        let (own_sum, total_sum) = counts.entry(name.to_owned()).or_default();
        *own_sum += own;
        *total_sum += if is_outermost { total } else { 0 };
    }
    total
}

#[test]
fn runtime_frames_are_left_out_if_asked() {
    let mut profile = empty_profile();
    let run_loop = "std::sys::backtrace::__rust_begin_short_backtrace::<f, ()>";
    push_sample(&mut profile, 0, Some(&["start", run_loop, "work"]));
    push_sample(&mut profile, 1_000_000, Some(&["start", run_loop]));
    let options = ExportOptions {
        folds_runtime: true,
        ..ExportOptions::default()
    };
    let file = written(&profile, &options);
    assert_eq!(file["nodes"][0]["children"], json!([2, 3, 4, 5]));
    assert_eq!(file["nodes"][4]["callFrame"]["functionName"], "work");
    assert_eq!(file["samples"], json!([5, 4]));
}
