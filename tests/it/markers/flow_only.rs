//! Flow-only markers are recorded only with the feature for flows; otherwise their payloads are not
//! evaluated.

use crate::common::{Read, isolated};
use gekkota::marker::built_in::FlowMarker;
use gekkota::marker::profiler_marker_flow_only;
use gekkota::{
    Features, FlowId, MarkerOptions, ProfilerSession, StartParams, add_marker,
    gecko_profiler_category, profiler_pause, profiler_resume, register_thread,
};

/// Adds two flow-only markers and another one, and returns how many flow-only payloads were
/// evaluated.
fn add_markers() -> u32 {
    let (category, options) = (gecko_profiler_category!(Other), MarkerOptions::default());
    let mut evaluated = 0;
    let mut payload = |id: u64| {
        evaluated += 1;
        FlowMarker {
            flow: FlowId::from(id),
        }
    };
    profiler_marker_flow_only!("flow only", category, options, payload(7));
    add_marker(
        "always",
        category,
        options,
        FlowMarker {
            flow: FlowId::from(8u64),
        },
    );
    profiler_marker_flow_only!("flow only", category, options, payload(9));
    evaluated
}

/// Returns the names of the thread's markers, with their flows.
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

/// Records a session with these features. Returns its markers, and how many flow-only payloads were
/// evaluated.
fn record(features: Features) -> (Vec<(String, String)>, u32) {
    let session = ProfilerSession::start(StartParams::default().features(features)).expect("start");
    let evaluated = add_markers();
    profiler_pause();
    assert_eq!(add_markers(), 0, "the session is paused");
    profiler_resume();
    (
        found(&Read::from_profile(&session.finish().expect("profile"))),
        evaluated,
    )
}

#[test]
fn flow_only_markers_are_recorded_only_with_feature() {
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
        assert_eq!(add_markers(), 0, "the session has ended");
    });
}
