//! Contexts in the profile: intervals for the viewer, and labels for pprof.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use gekkota::context::{ProfilerContext, in_context};
use gekkota::thread::{ThreadId, profiler_current_thread_id};
use gekkota::{Profile, ProfilerSession, StartParams, profiler_context, register_thread};

use crate::common::moving_task::{Task, poll_on, wait};
use crate::common::sampled::{start_counter, wait_for_samples, work_until_sampled};
use crate::common::typed_markers::{TypedMarker, typed_markers};
use crate::common::{Read, isolated};

const WANTED_SAMPLES: usize = 15;

#[inline(never)]
fn work_for_first() {
    work_until_sampled(WANTED_SAMPLES);
    std::hint::black_box(1);
}

#[inline(never)]
fn work_for_second() {
    work_until_sampled(WANTED_SAMPLES);
    std::hint::black_box(2);
}

#[inline(never)]
fn work_outside() {
    work_until_sampled(WANTED_SAMPLES);
    std::hint::black_box(3);
}

fn work_in_turns() {
    for _ in 0..2 {
        {
            profiler_context!(trace_id = 0xa1, span_id = 0xb1, "route" = "/first");
            work_for_first();
        }
        work_outside();
        let second = ProfilerContext::new().with_trace_id(0xa2);
        let _second = second.with_label("route", "/second").enter();
        work_for_second();
    }
}

/// Returns the contexts' intervals of a thread.
fn contexts(read: &Read, thread: &str) -> Vec<TypedMarker> {
    let mut markers = typed_markers(read, thread);
    markers.retain(|marker| marker.name == "Context");
    let all = markers.iter();
    all.for_each(|marker| assert_eq!(marker.type_name, "SampleContext"));
    markers
}

/// Returns the text of a field in each sample that contains a function; `None` for a sample outside
/// of all contexts.
#[track_caller]
fn field_in(read: &Read, thread: &str, function: &str, field: &str) -> Vec<Option<String>> {
    let contexts = contexts(read, thread);
    let function = format!("{function} (in");
    let samples = read.samples(thread).into_iter();
    let found = samples.filter(|sample| sample.stack.iter().any(|frame| frame.contains(&function)));
    let found: Vec<_> = found
        .map(|sample| {
            let mut at = contexts.iter().filter(|context| {
                let end_ms = context.end_ms.expect("an interval");
                context.start_ms <= sample.time_ms && sample.time_ms < end_ms
            });
            let context = at.next();
            assert!(at.next().is_none(), "contexts do not overlap");
            context.and_then(|context| Some(context.fields.get(field)?.as_str()?.to_owned()))
        })
        .collect();
    assert!(found.len() >= WANTED_SAMPLES, "{} samples", found.len());
    found
}

fn assert_all(found: &[Option<String>], expected: Option<&str>) {
    for text in found {
        assert_eq!(text.as_deref(), expected);
    }
}

#[test]
fn each_sample_has_the_context_in_which_it_was_taken() {
    isolated(|| {
        start_counter();
        let session = ProfilerSession::start(StartParams::default()).expect("starts");
        let worker = std::thread::spawn(|| {
            register_thread("worker");
            work_in_turns();
        });
        worker.join().expect("no panic");
        let profile = session.finish().expect("a profile");
        let read = Read::from_profile(&profile);
        check_turns(&read);
        check_pprof(&profile);
        // A profile that was read back has the contexts, too.
        let path = std::env::temp_dir().join(format!("contexts-{}.json", std::process::id()));
        profile.save(&path).expect("saved");
        let again = Profile::read(&path).expect("read");
        std::fs::remove_file(&path).expect("removed");
        check_turns(&Read::of_file(&again));
        check_pprof(&again);
    });
}

fn check_turns(read: &Read) {
    let of = |function, field| field_in(read, "worker", function, field);
    let first = format!("{:032x}", 0xa1);
    assert_all(&of("work_for_first", "trace_id"), Some(&first));
    let span = format!("{:016x}", 0xb1);
    assert_all(&of("work_for_first", "span_id"), Some(&span));
    assert_all(&of("work_for_first", "route"), Some("/first"));
    assert_all(&of("work_outside", "trace_id"), None);
    let second = format!("{:032x}", 0xa2);
    assert_all(&of("work_for_second", "trace_id"), Some(&second));
    assert_all(&of("work_for_second", "span_id"), None);
    assert_all(&of("work_for_second", "route"), Some("/second"));
}

#[cfg(feature = "protobuf")]
fn check_pprof(profile: &Profile) {
    use std::io::Read as _;

    let mut bytes = Vec::new();
    profile
        .write(gekkota::profile::Format::Pprof, &mut bytes)
        .expect("a vector never fails");
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&bytes[..])
        .read_to_end(&mut plain)
        .expect("gzip");
    let has = |text: &str| {
        plain
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    };
    for text in ["trace_id", "span_id", "route", "/first", "/second"] {
        assert!(has(text), "{text}");
    }
    assert!(has(&format!("{:032x}", 0xa1)) && has(&format!("{:016x}", 0xb1)));
    assert!(!has("SampleContext."), "labels have the fields' own keys");
}

#[cfg(not(feature = "protobuf"))]
fn check_pprof(_: &Profile) {}

/// Starts a registered thread that sleeps in a context until the sender is dropped.
fn sleep_in(context: ProfilerContext) -> (Sender<()>, ThreadId, JoinHandle<()>) {
    let (wake, wakes): (Sender<()>, Receiver<()>) = channel();
    let (send_id, id) = channel();
    let sleeper = std::thread::spawn(move || {
        register_thread("sleeper");
        let _context = context.enter();
        send_id
            .send(profiler_current_thread_id())
            .expect("waited for");
        sleep_until_dropped(&wakes);
    });
    (wake, id.recv().expect("an id"), sleeper)
}

#[inline(never)]
fn sleep_until_dropped(wakes: &Receiver<()>) {
    while wakes.recv().is_ok() {}
    std::hint::black_box(4);
}

#[test]
fn thread_that_waits_has_its_context() {
    isolated(|| {
        let context = ProfilerContext::new().with_trace_id(u128::MAX);
        let (wake, id, sleeper) = sleep_in(context);
        let session = ProfilerSession::start(StartParams::default()).expect("starts");
        wait_for_samples(id, WANTED_SAMPLES);
        // A thread that has run for a moment is read again.
        wake.send(()).expect("it sleeps");
        wait_for_samples(id, WANTED_SAMPLES);
        let read = Read::from_profile(&session.finish().expect("a profile"));
        let found = field_in(&read, "sleeper", "sleep_until_dropped", "trace_id");
        assert_all(&found, Some(&"f".repeat(32)));
        drop(wake);
        sleeper.join().expect("no panic");
    });
}

fn new_task() -> Task {
    let context = ProfilerContext::new().with_span_id(5);
    Box::pin(in_context(context, async {
        work_for_first();
        wait().await;
        work_for_first();
    }))
}

#[test]
fn future_has_its_context_on_each_thread_that_polls_it() {
    isolated(|| {
        start_counter();
        let session = ProfilerSession::start(StartParams::default()).expect("starts");
        let task = poll_on("first", new_task(), work_outside).expect("it is pending");
        assert!(poll_on("second", task, work_outside).is_none());
        let read = Read::from_profile(&session.finish().expect("a profile"));
        for thread in ["first", "second"] {
            let of = |function| field_in(&read, thread, function, "span_id");
            assert_all(&of("work_for_first"), Some("0000000000000005"));
            assert_all(&of("work_outside"), None);
        }
    });
}
