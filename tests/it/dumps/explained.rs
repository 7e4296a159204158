//! Explanations of slow requests, compared with what the requests measured themselves.

use std::hint::black_box;
use std::io::{PipeReader, Read as _, Write as _};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use gekkota::context::ProfilerContext;
use gekkota::dump::profiler_set_dumps;
use gekkota::profile::{Explanation, SlowRequest, TimeKind};
use gekkota::thread::profiler_current_thread_id;
use gekkota::{
    MarkerTiming, Profile, ProfilerTime, add_untyped_marker, gecko_profiler_category,
    register_thread,
};

use super::{Folder, name, settings, start};
use crate::common::sampled::{start_counter, wait_for_samples, work_until_sampled};
use crate::common::{Read, isolated, thread_cpu, wait_until, work_for_cpu};

const REQUEST: &str = "GET /slow";
/// Share of a measured time by which its explanation may differ, in addition to the sampler's
/// intervals: the profiler's own signals are part of what a thread measures.
const NOISE: f64 = 0.05;

/// What a request measured: how long it was in a function, and what it did there.
type Measured = (TimeKind, &'static str, Duration);

fn timed(wait: impl FnOnce()) -> Duration {
    let start = Instant::now();
    wait();
    start.elapsed()
}

#[inline(never)]
fn compute_for_the_request() -> Duration {
    let start = thread_cpu();
    work_for_cpu(Duration::from_millis(25));
    thread_cpu() - start
}

#[inline(never)]
fn wait_for_the_lock(lock: &Mutex<()>) {
    drop(black_box(lock.lock().expect("no thread panics")));
}

#[inline(never)]
fn sleep_in_the_request(time: Duration) {
    std::thread::sleep(time);
    black_box(());
}

#[inline(never)]
fn read_the_answer(pipe: &mut PipeReader) {
    let mut byte = [0; 1];
    pipe.read_exact(&mut byte).expect("a byte");
    black_box(byte);
}

/// Does what a slow request does, and returns what it measured.
fn slow_request() -> Vec<Measured> {
    let lock = Mutex::new(());
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    let (locks, is_locked) = mpsc::channel();
    let (asks, is_asked) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let lock = &lock;
        scope.spawn(move || {
            let held = lock.lock().expect("no thread panics");
            locks.send(()).expect("the request waits");
            std::thread::sleep(Duration::from_millis(60));
            drop(held);
            is_asked.recv().expect("the request asks");
            std::thread::sleep(Duration::from_millis(30));
            writer.write_all(&[1]).expect("the request reads");
        });
        is_locked.recv().expect("the other thread begins");
        let computed = compute_for_the_request();
        let locked = timed(|| wait_for_the_lock(lock));
        let slept = timed(|| sleep_in_the_request(Duration::from_millis(40)));
        asks.send(()).expect("the other thread waits");
        let read = timed(|| read_the_answer(&mut reader));
        vec![
            (TimeKind::Cpu, "compute_for_the_request", computed),
            (TimeKind::Lock, "wait_for_the_lock", locked),
            (TimeKind::Sleep, "sleep_in_the_request", slept),
            (TimeKind::Io, "read_the_answer", read),
        ]
    })
}

/// Returns the longest time between two samples of a thread within a range, in ms.
fn longest_gap(read: &Read, thread: &str, (start_ms, end_ms): (f64, f64)) -> f64 {
    let times: Vec<_> = read
        .samples(thread)
        .iter()
        .map(|sample| sample.time_ms)
        .collect();
    let pairs = times.windows(2).map(|pair| (pair[0], pair[1]));
    let within = pairs.filter(|(first, second)| *second >= start_ms && *first <= end_ms);
    within
        .map(|(first, second)| second - first)
        .fold(0.0, f64::max)
}

/// Checks a time in the explanation. At the beginning and at the end, the time between two samples
/// may belong to either sample.
fn assert_near(explained: Duration, measured: Duration, gap_ms: f64, explanation: &Explanation) {
    let [explained, measured] = [explained, measured].map(|time| time.as_secs_f64() * 1e3);
    let tolerance = 2.0 * gap_ms + NOISE * measured;
    assert!(
        (explained - measured).abs() <= tolerance,
        "explained {explained} ms, measured {measured} ms, may differ by {tolerance} ms\n{explanation}"
    );
}

fn sum_of_parts(explanation: &Explanation) -> Duration {
    explanation.parts.iter().map(|part| part.time).sum()
}

#[test]
fn delays_are_in_their_places_and_as_long_as_measured() {
    isolated(|| {
        let session = start();
        wait_for_samples(profiler_current_thread_id(), 2);
        let begin = ProfilerTime::now();
        let measured = slow_request();
        let end = ProfilerTime::now();
        let category = gecko_profiler_category!(Network);
        add_untyped_marker(REQUEST, category, MarkerTiming::interval(begin, end).into());
        wait_for_samples(profiler_current_thread_id(), 2);
        let profile = session.finish().expect("a profile");
        let explanation = profile
            .explain(&SlowRequest::of_marker(REQUEST))
            .expect("found");
        let read = Read::from_profile(&profile);
        let marker = read
            .markers("test")
            .into_iter()
            .find(|row| row.0 == REQUEST);
        let (_, start_ms, end_ms, ..) = marker.expect("the marker");
        let gap_ms = longest_gap(&read, "test", (start_ms, end_ms.expect("an end")));
        for (kind, function, time) in measured {
            assert_near(
                explanation.time_in(kind, function),
                time,
                gap_ms,
                &explanation,
            );
        }
        // No time is missing or counted twice.
        let left = explanation.length.abs_diff(sum_of_parts(&explanation));
        assert!(left < Duration::from_micros(1), "{left:?}\n{explanation}");
        assert_eq!(
            explanation.length.as_nanos(),
            end.duration_since(begin).as_nanos()
        );
        assert_eq!(explanation.threads, ["test"]);
        // The times alone, and a file, give the same explanation.
        let range = profile
            .explain(&SlowRequest::between("test", begin, end))
            .expect("found");
        assert_eq!(range.parts, explanation.parts);
        let mut text = Vec::new();
        profile
            .write(gekkota::profile::Format::Gecko, &mut text)
            .expect("written");
        let file = Profile::read_from(&*text).expect("a profile");
        let from_file = file
            .explain(&SlowRequest::of_marker(REQUEST))
            .expect("found");
        for part in &explanation.parts {
            let other = from_file.time(part.kind);
            assert!(
                part.time.abs_diff(other) < Duration::from_micros(100),
                "{from_file}"
            );
        }
        assert!(
            file.explain(&SlowRequest::between("test", begin, end))
                .is_err()
        );
        assert!(profile.explain(&SlowRequest::of_trace(7)).is_err());
    });
}

#[test]
fn request_that_moves_between_threads_waits_in_between() {
    isolated(|| {
        start_counter();
        let session = start();
        let context = ProfilerContext::new().with_trace_id(0xabc);
        let work_in_context = move || {
            // Of the thread before the request, and after it.
            work_until_sampled(2);
            let start = Instant::now();
            let guard = context.enter();
            work_until_sampled(2);
            drop(guard);
            let end = Instant::now();
            work_until_sampled(2);
            (start, end)
        };
        let (_, left) = work_in_context();
        // The other thread answers another request first.
        let entered = std::thread::spawn(move || {
            register_thread("second");
            let other = ProfilerContext::new().with_trace_id(0xdef);
            {
                let _other = other.enter();
                work_until_sampled(20);
            }
            work_in_context().0
        });
        let entered = entered.join().expect("the second part");
        let profile = session.finish().expect("a profile");
        let explanation = profile
            .explain(&SlowRequest::of_trace(0xabc))
            .expect("found");
        let read = Read::from_profile(&profile);
        let whole = (0.0, f64::MAX);
        let gap_ms = f64::max(
            longest_gap(&read, "test", whole),
            longest_gap(&read, "second", whole),
        );
        let suspended = entered - left;
        let awaited = explanation.time(TimeKind::Await);
        assert_near(awaited, suspended, gap_ms, &explanation);
        assert_eq!(explanation.trace_id, Some(0xabc));
        let mut threads = explanation.threads.clone();
        threads.sort();
        assert_eq!(threads, ["second", "test"]);
        let left = explanation.length.abs_diff(sum_of_parts(&explanation));
        assert!(left < Duration::from_micros(1), "{left:?}\n{explanation}");
    });
}

#[test]
fn dump_for_a_long_interval_has_its_explanation_beside_it() {
    isolated(|| {
        let folder = Folder::new();
        let limit = Duration::from_millis(50);
        let settings = settings(&folder).last(Duration::ZERO).max_files(1);
        profiler_set_dumps(Some(settings.on_interval_longer_than(limit))).expect("no limits");
        let session = start();
        wait_for_samples(profiler_current_thread_id(), 2);
        let category = gecko_profiler_category!(Other);
        let text_of = |dump: &std::path::Path| {
            let (stem, _) = name(dump).split_once('.').expect("an ending");
            dump.with_file_name(format!("{stem}.txt"))
        };
        let mut last = None;
        for request in ["First", "Second"] {
            let begin = ProfilerTime::now();
            std::thread::sleep(limit * 2);
            let end = ProfilerTime::now();
            add_untyped_marker(request, category, MarkerTiming::interval(begin, end).into());
            let is_new = |dump: &std::path::PathBuf| name(dump).contains(request);
            wait_until("the dump is explained", || {
                folder
                    .dumps()
                    .iter()
                    .any(|dump| is_new(dump) && text_of(dump).exists())
            });
            let dump = folder.dumps().into_iter().find(is_new).expect("the dump");
            let text = std::fs::read_to_string(text_of(&dump)).expect("a text");
            let length_ms = end.duration_since(begin).as_secs_f64() * 1e3;
            assert!(
                text.starts_with(&format!("{request} took {length_ms:.1} ms on test, from ")),
                "{text}"
            );
            // The sampler may have been kept from its work.
            let kinds = ["\nsleep ", "\nnot sampled "];
            assert!(kinds.iter().any(|kind| text.contains(kind)), "{text}");
            // The dump has the whole interval.
            let profile = Profile::read(&dump).expect("a profile");
            let explanation = profile
                .explain(&SlowRequest::of_marker(request))
                .expect("found");
            assert!(explanation.length > limit, "{explanation}");
            // The text counts from the start that the viewer finds in the dump.
            let in_file = explanation.viewer_range.expect("a recording").start;
            let in_text = text.split_once("range=").expect("a range").1;
            let start_us: u128 = in_text.split('u').next().unwrap().parse().expect("µs");
            assert!(in_file.as_micros().abs_diff(start_us) <= 1, "{text}");
            last = Some(dump);
        }
        wait_until("the first dump and its text are removed", || {
            let files = std::fs::read_dir(&folder.0).expect("the folder");
            files.count() == 2
        });
        let last = last.expect("two dumps");
        assert!(last.exists() && text_of(&last).exists());
        drop(session);
    });
}
