//! The built-in marker types.

use std::time::Duration;

use gekkota::marker::built_in::{
    Awake, CPUSpeed, CompositorScreenshot, ContextSwitches, DOMEvent, DetectedHang, FileIO,
    HttpVersion, IPCMarker, IPCSide, IPCStep, JsAllocation, Log, MainThreadLongTask, MediaSample,
    NativeAllocation, NetworkCache, NetworkMarker, NetworkRedirect, NetworkStatus, PreferenceRead,
    StackMarker, TextStack, UserTiming, VideoFallingBehind, VideoSinkRender, WakeUpCount,
};
use gekkota::process::ProcessId;
use gekkota::thread::ThreadId;
use gekkota::{ProfilerMarker, ProfilerTime, add_marker, gecko_profiler_category};

fn add<T: ProfilerMarker + 'static>(payload: T) {
    let name = T::marker_type_name();
    assert!(!name.is_empty());
    add_marker(
        name,
        gecko_profiler_category!(Other),
        Default::default(),
        payload,
    );
}

pub(crate) fn every_type() {
    let thread = ThreadId::from_number(8);
    add(StackMarker());
    add(TextStack {
        name: "text".into(),
    });
    add(Log {
        level: "Info".into(),
        message: "said".into(),
    });
    add(FileIO {
        operation: "read".into(),
        source: "test".into(),
        filename: Some("/tmp/file".to_owned()),
        threadId: Some(thread),
    });
    add(NativeAllocation {
        size: -16,
        memory_address: 32,
        thread_id: thread,
        sampled_size: 0,
    });
    add(JsAllocation {
        class_name: "Function".into(),
        type_name: "JSObject".into(),
        coarse_type: "Object".into(),
        size: 16,
        in_nursery: true,
    });
    add(CompositorScreenshot {
        url: "data:,".into(),
        window_id: 1,
        window_width: 640,
        window_height: 480,
    });
    add(CPUSpeed { speed: 3.5 });
    add(ContextSwitches {
        ran: Duration::from_nanos(1),
        waited: Some(Duration::from_nanos(2)),
        slept: None,
        voluntary: 3,
        involuntary: 4,
    });
    add(Awake {
        cpu_time_ns: Some(7),
        cpu_id: Some(0),
    });
    add(WakeUpCount {
        Count: 3,
        label: "all".into(),
    });
    add(UserTiming {
        name: "loaded".to_owned(),
        entryType: "measure".into(),
        startMark: Some("start".to_owned()),
        endMark: None,
    });
    add(MainThreadLongTask {
        category: "click".into(),
    });
    add(DetectedHang {});
    add(PreferenceRead {
        prefName: "name".to_owned(),
        prefKind: "Default".into(),
        prefType: "bool".into(),
        prefValue: "true".to_owned(),
    });
    add(DOMEvent {
        eventType: "click".into(),
        target: None,
        latency: Some(0.5),
    });
    add(MediaSample {
        sampleStartTimeUs: 0,
        sampleEndTimeUs: 1,
    });
    add(VideoFallingBehind {
        videoFrameStartTimeUs: 0,
        mediaCurrentTimeUs: 1,
    });
    add(VideoSinkRender { clockTimeUs: 1 });
}

pub(crate) fn transfers(other_pid: ProcessId, thread: ThreadId) {
    let now = ProfilerTime::now();
    let steps = [
        IPCStep::Sent,
        IPCStep::TransferStart,
        IPCStep::TransferEnd,
        IPCStep::Arrived,
        IPCStep::Received,
    ];
    for (step, side) in steps
        .into_iter()
        .flat_map(|step| [(step, IPCSide::Parent), (step, IPCSide::Child)])
    {
        add(IPCMarker {
            time: now,
            other_pid,
            message_seqno: 1,
            message_type: "Message".into(),
            side,
            step,
            is_sync: false,
            thread_id: Some(thread),
        });
    }
    let answered = [
        (
            NetworkStatus::Start,
            NetworkRedirect::Permanent,
            HttpVersion::Http10,
            NetworkCache::Unresolved,
        ),
        (
            NetworkStatus::Stop,
            NetworkRedirect::Temporary,
            HttpVersion::Http11,
            NetworkCache::Hit,
        ),
        (
            NetworkStatus::Redirect,
            NetworkRedirect::Internal,
            HttpVersion::Http2,
            NetworkCache::HitViaReval,
        ),
        (
            NetworkStatus::Cancel,
            NetworkRedirect::Internal,
            HttpVersion::Http3,
            NetworkCache::Missed,
        ),
        (
            NetworkStatus::Stop,
            NetworkRedirect::Internal,
            HttpVersion::Http3,
            NetworkCache::MissedViaReval,
        ),
    ];
    for (status, redirect, version, cache) in answered {
        add(NetworkMarker {
            id: 1,
            status,
            URI: "https://example.org".to_owned(),
            RedirectURI: None,
            redirectType: Some(redirect),
            isHttpToHttpsRedirect: Some(false),
            redirectId: None,
            requestMethod: Some("GET".into()),
            requestStatus: None,
            responseStatus: Some(200),
            contentType: None,
            httpVersion: Some(version),
            cache: Some(cache),
            count: Some(7),
            pri: 0,
            classOfService: None,
            isPrivateBrowsing: None,
            startTime: now,
            endTime: now,
            domainLookupStart: None,
            domainLookupEnd: None,
            connectStart: None,
            tcpConnectEnd: None,
            secureConnectionStart: None,
            connectEnd: None,
            requestStart: None,
            responseStart: None,
            responseEnd: None,
        });
    }
}
