//! Adds markers of the types that come with gekkota, which have Gecko's names. The viewer has
//! special views for some of them.

use gekkota::marker::built_in::*;
use gekkota::{
    FlowId, MarkerOptions, MarkerStack, MarkerTiming, ProfilerTime, add_marker,
    gecko_profiler_category,
};

use super::after;

/// Sequence number of a message that both its sender and its receiver report.
const MESSAGE_NUMBER: u64 = 4711;

/// Adds markers of each type.
pub(crate) fn show(start: ProfilerTime) {
    let between = |begin: f64, end: f64| {
        MarkerOptions::from(MarkerTiming::interval(
            after(start, begin),
            after(start, end),
        ))
    };
    show_plain(start);
    show_network(start);
    show_flows(start);
    show_screenshots(start);
    keep_a_buffer();
    use_a_buffer();
    show_message(
        start,
        &[
            (IPCStep::Sent, 200.0),
            (IPCStep::TransferStart, 201.0),
            (IPCStep::TransferEnd, 202.0),
        ],
    );
    let file = FileIO {
        operation: "read".into(),
        source: "PoisonIOInterposer".into(),
        filename: Some("/tmp/a.txt".to_owned()),
        threadId: None,
    };
    add_marker(
        "FileIO",
        gecko_profiler_category!(Other),
        between(10.0, 20.0),
        file,
    );
}

/// Adds the receiver's markers of the message.
pub(crate) fn show_on_other_thread(start: ProfilerTime) {
    show_message(
        start,
        &[(IPCStep::Arrived, 204.0), (IPCStep::Received, 205.0)],
    );
}

/// Adds a marker for each of these steps of the message.
fn show_message(start: ProfilerTime, steps: &[(IPCStep, f64)]) {
    for &(step, ms) in steps {
        let time = after(start, ms);
        let message = IPCMarker {
            time,
            other_pid: gekkota::process::profiler_current_process_id(),
            message_seqno: MESSAGE_NUMBER,
            message_type: "PGallery::Msg_Show".into(),
            side: IPCSide::Parent,
            step,
            is_sync: false,
            thread_id: None,
        };
        add_marker(
            "a message",
            gecko_profiler_category!(IPC),
            MarkerTiming::instant_at(time).into(),
            message,
        );
    }
}

fn show_plain(start: ProfilerTime) {
    let category = gecko_profiler_category!(Other);
    let between = |begin: f64, end: f64| {
        MarkerOptions::from(MarkerTiming::interval(
            after(start, begin),
            after(start, end),
        ))
    };
    let at = |ms: f64| MarkerOptions::from(MarkerTiming::instant_at(after(start, ms)));
    add_marker(
        "Tracing",
        category,
        between(10.0, 20.0),
        Tracing::from_str("Gallery"),
    );
    add_marker("Stack marker", category, between(10.0, 20.0), StackMarker());
    add_marker(
        "Text stack",
        category,
        between(10.0, 20.0),
        TextStack {
            name: "a text".into(),
        },
    );
    let log = |level: &'static str, message: &'static str| Log {
        level: level.into(),
        message: message.into(),
    };
    add_marker("gallery", category, at(11.0), log("Error", "it \"failed\""));
    add_marker("gallery", category, at(12.0), log("Info", "it went on"));
    add_marker(
        "CPU 0",
        category,
        between(10.0, 20.0),
        CPUSpeed { speed: 3.5 },
    );
    let woken = MarkerTiming::interval_start(after(start, 10.0));
    add_marker(
        "Awake",
        category,
        woken.into(),
        Awake {
            cpu_time_ns: None,
            cpu_id: Some(3),
        },
    );
    let asleep = MarkerTiming::interval_end(after(start, 20.0));
    add_marker(
        "Awake",
        category,
        asleep.into(),
        Awake {
            cpu_time_ns: Some(1_500_000),
            cpu_id: None,
        },
    );
    add_marker(
        "Wake-ups",
        category,
        between(10.0, 20.0),
        WakeUpCount {
            Count: 12,
            label: "timers".into(),
        },
    );
    let measure = UserTiming {
        name: "from a to b".to_owned(),
        entryType: "measure".into(),
        startMark: Some("a".to_owned()),
        endMark: Some("b".to_owned()),
    };
    add_marker("UserTiming", category, between(10.0, 20.0), measure);
    let task = MainThreadLongTask {
        category: "LongTask".into(),
    };
    add_marker("MainThreadLongTask", category, between(10.0, 90.0), task);
    add_marker(
        "BHR-detected hang",
        category,
        between(10.0, 90.0),
        DetectedHang {},
    );
    let preference = PreferenceRead {
        prefName: "gallery.size".to_owned(),
        prefKind: "User".into(),
        prefType: "Int".into(),
        prefValue: "7".to_owned(),
    };
    add_marker("PreferenceRead", category, at(13.0), preference);
    let click = DOMEvent {
        eventType: "click".into(),
        target: Some("button".to_owned()),
        latency: Some(1.5),
    };
    add_marker("DOMEvent", category, between(10.0, 20.0), click);
    let sample = MediaSample {
        sampleStartTimeUs: 1000,
        sampleEndTimeUs: 41_000,
    };
    add_marker("MediaSample", category, at(14.0), sample);
    let late = VideoFallingBehind {
        videoFrameStartTimeUs: 1000,
        mediaCurrentTimeUs: 90_000,
    };
    add_marker("VideoFallingBehind", category, at(15.0), late);
    add_marker(
        "VideoSinkRender",
        category,
        at(16.0),
        VideoSinkRender {
            clockTimeUs: 41_000,
        },
    );
}

fn show_network(start: ProfilerTime) {
    let category = gecko_profiler_category!(Network);
    let part = |id: u64, status: NetworkStatus, begin: f64, end: f64| {
        let url = format!("https://example.org/{id}.html");
        NetworkMarker::new(id, status, url, after(start, begin), after(start, end))
    };
    let add = |part: NetworkMarker| {
        let timing = MarkerTiming::interval(part.startTime, part.endTime);
        add_marker(&format!("Load {}", part.id), category, timing.into(), part);
    };
    add(part(1, NetworkStatus::Start, 20.0, 25.0));
    add(NetworkMarker {
        requestMethod: Some("GET".into()),
        requestStatus: Some("NS_OK".into()),
        responseStatus: Some(200),
        contentType: Some("text/html".into()),
        httpVersion: Some(HttpVersion::Http2),
        cache: Some(NetworkCache::Missed),
        count: Some(20_480),
        pri: -5,
        domainLookupStart: Some(after(start, 30.0)),
        domainLookupEnd: Some(after(start, 31.0)),
        connectStart: Some(after(start, 31.0)),
        tcpConnectEnd: Some(after(start, 33.0)),
        secureConnectionStart: Some(after(start, 33.0)),
        connectEnd: Some(after(start, 36.0)),
        requestStart: Some(after(start, 36.0)),
        responseStart: Some(after(start, 46.0)),
        responseEnd: Some(after(start, 56.0)),
        ..part(1, NetworkStatus::Stop, 25.0, 60.0)
    });
    add(part(2, NetworkStatus::Start, 70.0, 75.0));
    add(NetworkMarker {
        RedirectURI: Some("https://example.org/3.html".to_owned()),
        redirectType: Some(NetworkRedirect::Temporary),
        redirectId: Some(3),
        ..part(2, NetworkStatus::Redirect, 75.0, 80.0)
    });
    add(part(3, NetworkStatus::Start, 80.0, 85.0));
    add(part(3, NetworkStatus::Cancel, 85.0, 90.0));
    // A request without a response.
    add(part(4, NetworkStatus::Start, 250.0, 255.0));
}

fn show_flows(start: ProfilerTime) {
    let category = gecko_profiler_category!(Other);
    let between = |begin: f64, end: f64| {
        MarkerOptions::from(MarkerTiming::interval(
            after(start, begin),
            after(start, end),
        ))
    };
    let flow = FlowId::from(0xf10fu64);
    add_marker("Flow", category, between(10.0, 12.0), FlowMarker { flow });
    add_marker(
        "Flow stack",
        category,
        between(20.0, 22.0),
        FlowStackMarker(flow),
    );
    add_marker(
        "Flow text",
        category,
        between(30.0, 32.0),
        FlowTextMarker {
            name: "a text".into(),
            flow,
        },
    );
    add_marker(
        "Flow stack text",
        category,
        between(40.0, 42.0),
        FlowStackTextMarker {
            name: "a text".into(),
            flow,
        },
    );
    let end = TerminatingFlowMarker {
        terminatingFlow: flow,
    };
    add_marker("Flow end", category, between(50.0, 52.0), end);
    let end = TerminatingFlowTextMarker {
        name: "a text".into(),
        terminatingFlow: flow,
    };
    add_marker("Flow text end", category, between(60.0, 62.0), end);
    add_marker(
        "Flow stack end",
        category,
        between(70.0, 72.0),
        TerminatingFlowStackMarker { flow },
    );
}

fn show_screenshots(start: ProfilerTime) {
    // A GIF of one pixel.
    let url = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw==";
    for ms in [10.0, 110.0] {
        let picture = CompositorScreenshot {
            url: url.into(),
            window_id: 0xabc,
            window_width: 800,
            window_height: 600,
        };
        let options = MarkerTiming::instant_at(after(start, ms)).into();
        add_marker(
            "a picture",
            gecko_profiler_category!(Graphics),
            options,
            picture,
        );
    }
}

/// Adds a marker of an allocation with its stack. The viewer makes trees of retained, allocated and
/// freed memory from such markers.
#[inline(never)]
fn add_allocation_marker(size: i64, memory_address: u64) {
    let allocation = NativeAllocation {
        size,
        memory_address,
        thread_id: gekkota::thread::profiler_current_thread_id(),
        sampled_size: 0,
    };
    add_marker(
        "Native allocation",
        gecko_profiler_category!(Other),
        MarkerStack::Full.into(),
        allocation,
    );
}

#[inline(never)]
fn keep_a_buffer() {
    add_allocation_marker(3000, 0x1000);
    std::hint::black_box(());
}

#[inline(never)]
fn use_a_buffer() {
    add_allocation_marker(500, 0x2000);
    add_allocation_marker(-500, 0x2000);
    let object = JsAllocation {
        class_name: "Array".into(),
        type_name: "JSObject".into(),
        coarse_type: "Object".into(),
        size: 64,
        in_nursery: true,
    };
    add_marker(
        "JS allocation",
        gecko_profiler_category!(JavaScript),
        MarkerStack::Full.into(),
        object,
    );
    std::hint::black_box(());
}
