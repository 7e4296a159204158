//! A profile holds what is at most so long ago when it is taken, and nothing from before the time that was asked for.

use std::sync::mpsc::channel;
use std::time::Duration;

use crate::common::{Read, isolated, work_for};
use gekkota::profile::{Format, SnapshotOptions};
use gekkota::{
    MarkerOptions, MarkerTiming, Profile, ProfilerSession, ProfilerTime, StartParams,
    add_text_marker, add_untyped_marker, gecko_profiler_category,
};
use serde_json::{Value, json};

const DURATION: Duration = Duration::from_millis(400);

#[inline(never)]
fn works_long_ago() {
    work_for(Duration::from_millis(400));
    std::hint::black_box(());
}

#[inline(never)]
fn works_lately() {
    work_for(Duration::from_millis(900));
    std::hint::black_box(());
}

fn add(name: &str, timing: MarkerTiming) {
    add_untyped_marker(
        name,
        gecko_profiler_category!(Other),
        MarkerOptions::default().with_timing(timing),
    );
}

/// What a thread does in a session: much that is long ago at its end. Gives a time in the middle, of which it has a marker.
fn live_through_it() -> ProfilerTime {
    gekkota::register_thread("busy");
    let ended = std::thread::spawn(|| {
        gekkota::register_thread("ended");
        work_for(Duration::from_millis(50));
    });
    ended.join().expect("thread");
    let begin = ProfilerTime::now();
    add("at first", MarkerTiming::instant_now());
    add_text_marker(
        "text at first",
        gecko_profiler_category!(Other),
        MarkerOptions::default(),
        "old",
    );
    add("short", MarkerTiming::interval_until_now_from(begin));
    add("begin", MarkerTiming::interval_start(begin));
    add("end long ago", MarkerTiming::interval_end(begin));
    works_long_ago();
    let since = ProfilerTime::now();
    add("since", MarkerTiming::instant_at(since));
    works_lately();
    add("long", MarkerTiming::interval_until_now_from(begin));
    add("end", MarkerTiming::interval_end(ProfilerTime::now()));
    add("at last", MarkerTiming::instant_now());
    since
}

fn record(params: StartParams) -> (Read, Profile, ProfilerTime) {
    let (wake, woken) = channel::<()>();
    let (slept, sleeps) = channel();
    let sleeper = std::thread::spawn(move || {
        gekkota::register_thread("sleeper");
        slept.send(()).expect("somebody waits");
        let _ = woken.recv();
    });
    sleeps.recv().expect("the sleeper");
    let session = ProfilerSession::start(params).expect("start");
    let since = std::thread::spawn(live_through_it).join().expect("thread");
    let profile = session.finish().expect("profile");
    drop(wake);
    sleeper.join().expect("thread");
    (Read::from_profile(&profile), profile, since)
}

fn names(read: &Read) -> Vec<String> {
    read.markers("busy")
        .into_iter()
        .map(|marker| marker.0)
        .collect()
}

fn has_string(read: &Read, part: &str) -> bool {
    let strings = read.thread("busy")["stringTable"]
        .as_array()
        .expect("strings");
    strings
        .iter()
        .any(|string| string.as_str().expect("a string").contains(part))
}

#[test]
fn what_is_longer_ago_stays_out_of_the_profile() {
    isolated(|| {
        let (read, profile, since) = record(StartParams::default().duration(DURATION));
        let meta = &read.0["meta"];
        let number = |name: &str| {
            meta[name]
                .as_f64()
                .unwrap_or_else(|| panic!("{name} in {meta}"))
        };
        assert_eq!(meta["configuration"]["duration"].as_f64(), Some(0.4));
        let (end, cut) = (number("profilingEndTime"), number("contentEarliestTime"));
        assert!((end - cut - 400.0).abs() < 0.001, "from {cut} to {end}");
        assert!(
            number("profilingStartTime") < cut - 400.0,
            "the session began earlier"
        );

        for thread in ["busy", "sleeper"] {
            let samples = read.samples(thread);
            assert!(
                samples
                    .iter()
                    .all(|sample| sample.time_ms >= cut && sample.time_ms <= end),
                "{thread}"
            );
            assert!(
                samples.len() > 10 && samples[0].time_ms < cut + 200.0,
                "{thread}: no more is left out"
            );
        }
        let asleep = read.samples("sleeper");
        assert!(
            asleep
                .iter()
                .all(|sample| sample.stack == asleep[0].stack && sample.stack.len() > 3)
        );
        assert!(has_string(&read, "works_lately") && !has_string(&read, "works_long_ago"));
        assert_eq!(names(&read), ["long", "end", "at last"]);
        assert!(!has_string(&read, "old"));
        assert_eq!(
            meta["markerSchema"].as_array().map(Vec::len),
            Some(0),
            "no text is left"
        );
        assert!(
            !read
                .threads()
                .iter()
                .any(|thread| thread["name"] == "ended")
        );

        let rows = read.0["counters"][0]["samples"]["data"]
            .as_array()
            .expect("the process's CPU time");
        assert!(rows.iter().all(|row| row[0].as_f64().expect("time") >= cut));
        assert_eq!(
            rows[0][1].as_i64(),
            Some(0),
            "what it had grown by before belongs to no row"
        );
        let summary = profile.summarize();
        let busy = summary
            .iter()
            .find(|thread| thread.name == "busy")
            .expect("a summary");
        assert_eq!(busy.samples, read.samples("busy").len());

        // Longer ago than the duration anyway.
        let same = written_since(&profile, since);
        assert_eq!(
            same.0["meta"]["contentEarliestTime"],
            meta["contentEarliestTime"]
        );
        assert_eq!(names(&same), names(&read));
    });
}

fn written_since(profile: &Profile, since: ProfilerTime) -> Read {
    let mut text = Vec::new();
    let options = SnapshotOptions::default().since(since);
    profile
        .write_with(Format::Gecko, &mut text, &options)
        .expect("a vector never fails");
    let path = std::env::temp_dir().join(format!("gekkota-since-{}.json", std::process::id()));
    profile.save_with(&path, &options).expect("saved");
    assert!(
        std::fs::read(&path).expect("the file") == text,
        "a file has the same"
    );
    std::fs::remove_file(path).expect("removed");
    Read::from_text(&text)
}

fn what_is_before_the_time_that_was_asked_for_stays_out(
    whole: &Read,
    profile: &Profile,
    since: ProfilerTime,
) {
    let since_ms = whole
        .markers("busy")
        .iter()
        .find(|marker| marker.0 == "since")
        .expect("its marker")
        .1;
    let read = written_since(profile, since);
    assert_eq!(
        read.0["meta"]["contentEarliestTime"].as_f64(),
        Some(since_ms)
    );
    assert_eq!(
        read.0["meta"]["profilingEndTime"],
        whole.0["meta"]["profilingEndTime"]
    );
    for thread in ["busy", "sleeper"] {
        let times = |read: &Read| {
            read.samples(thread)
                .iter()
                .map(|sample| sample.time_ms)
                .collect::<Vec<_>>()
        };
        let (mut expected, left) = (times(whole), times(&read));
        let before = expected.len();
        expected.retain(|&time_ms| time_ms >= since_ms);
        assert!(
            expected.len() > 10 && before - expected.len() > 10,
            "{thread}: both sides have samples"
        );
        // A run of equal samples that is cut gets its times by another division.
        assert!(
            left.len() == expected.len(),
            "{thread}: {} of {}",
            left.len(),
            expected.len()
        );
        assert!(
            left.iter()
                .zip(&expected)
                .all(|(one, other)| (one - other).abs() < 1e-5),
            "{thread}"
        );
    }
    assert!(has_string(&read, "works_lately") && !has_string(&read, "works_long_ago"));
    assert_eq!(names(&read), ["since", "long", "end", "at last"]);
    assert!(
        !read
            .threads()
            .iter()
            .any(|thread| thread["name"] == "ended")
    );
    let rows = read.0["counters"][0]["samples"]["data"]
        .as_array()
        .expect("the process's CPU time");
    assert!(
        rows.iter()
            .all(|row| row[0].as_f64().expect("time") >= since_ms)
    );

    // The profile itself has lost nothing by that.
    assert_eq!(names(&Read::from_profile(profile)), names(whole));
    // One before the session cuts nothing, one in the future everything.
    let read = written_since(profile, since.subtract_microseconds(1e9));
    assert!(read.0["meta"]["contentEarliestTime"].is_null() && names(&read) == names(whole));
    let read = written_since(profile, ProfilerTime::now().add_microseconds(1e9));
    assert_eq!(
        read.0["meta"]["contentEarliestTime"],
        read.0["meta"]["profilingEndTime"]
    );
    let is_empty = |thread: &Value| {
        ["samples", "markers"]
            .iter()
            .all(|table| thread[table]["data"] == json!([]))
    };
    assert!(read.threads().iter().all(is_empty));
}

#[test]
fn without_a_limit() {
    isolated(|| {
        let (read, profile, since) = record(StartParams::default().duration(Duration::ZERO));
        let meta = &read.0["meta"];
        assert!(
            meta["contentEarliestTime"].is_null()
                && meta["configuration"].get("duration").is_none()
        );
        assert!(has_string(&read, "works_long_ago"));
        assert_eq!(
            names(&read),
            [
                "begin",
                "end long ago",
                "at first",
                "text at first",
                "short",
                "since",
                "long",
                "end",
                "at last"
            ],
            "by the last moment of each"
        );
        assert!(
            read.threads()
                .iter()
                .any(|thread| thread["name"] == "ended")
        );
        assert_eq!(
            StartParams::new().duration(Duration::ZERO),
            StartParams::new()
        );
        what_is_before_the_time_that_was_asked_for_stays_out(&read, &profile, since);

        // One that the session has not reached cuts nothing.
        let (read, ..) = record(StartParams::default().duration(Duration::from_secs(3600)));
        assert!(read.0["meta"]["contentEarliestTime"].is_null() && names(&read).len() == 9);
    });
}
