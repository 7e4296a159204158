//! Markers of flows that are many are there only where the session asks for flows, and cost nothing elsewhere.

use crate::common::{Read, isolated};
use gekkota::marker::built_in::FlowMarker;
use gekkota::marker::profiler_marker_flow_only;
use gekkota::{
    Features, FlowId, MarkerOptions, ProfilerSession, StartParams, add_marker,
    gecko_profiler_category, profiler_pause, profiler_resume, register_thread,
};

/// How often the payloads of two flow-only markers were made.
fn add_markers() -> u32 {
    let (category, options) = (gecko_profiler_category!(Other), MarkerOptions::default());
    let mut evaluated = 0;
    let mut made = |id: u64| {
        evaluated += 1;
        FlowMarker {
            flow: FlowId::from(id),
        }
    };
    profiler_marker_flow_only!("flow only", category, options, made(7));
    add_marker(
        "always",
        category,
        options,
        FlowMarker {
            flow: FlowId::from(8u64),
        },
    );
    profiler_marker_flow_only!("flow only", category, options, made(9));
    evaluated
}

/// Names of the thread's markers, with their flows.
fn found(read: &Read) -> Vec<(String, String)> {
    let strings = &read.thread("flows")["stringTable"];
    let flow = |data: &serde_json::Value| {
        assert_eq!(data["type"], "FlowMarker");
        strings[data["flow"].as_u64().expect("an index") as usize]
            .as_str()
            .expect("digits")
            .to_owned()
    };
    read.markers("flows")
        .into_iter()
        .map(|(name, .., data)| (name, flow(&data)))
        .collect()
}

/// A session with these features: what it has, and how often payloads were made.
fn record(features: Features) -> (Vec<(String, String)>, u32) {
    let session = ProfilerSession::start(StartParams::default().features(features)).expect("start");
    let evaluated = add_markers();
    profiler_pause();
    assert_eq!(add_markers(), 0, "nothing is recorded");
    profiler_resume();
    (
        found(&Read::from_profile(&session.finish().expect("profile"))),
        evaluated,
    )
}

#[test]
fn flow_only_markers_are_there_only_with_the_feature() {
    isolated(|| {
        register_thread("flows");
        let marker = |name: &str, flow: u64| (name.to_owned(), format!("{flow:016x}"));
        assert_eq!(add_markers(), 0, "no session");
        assert_eq!(record(Features::NONE), (vec![marker("always", 8)], 0));
        let all = vec![
            marker("flow only", 7),
            marker("always", 8),
            marker("flow only", 9),
        ];
        assert_eq!(record(Features::FLOWS), (all, 2));
        assert_eq!(
            record(StartParams::default().features),
            (vec![marker("always", 8)], 0)
        );
        assert_eq!(add_markers(), 0, "no session any more");
    });
}
