//! A profile leaves out data that is older than the session's maximum duration or than the
//! requested time.

use std::sync::mpsc::channel;
use std::time::Duration;

use crate::common::{Read, Sample, isolated, wait_until, work_for};
use gekkota::profile::{Format, SnapshotOptions};
use gekkota::thread::{ThreadId, profiler_current_thread_id};
use gekkota::{
    AutoProfilerLabel, MarkerOptions, MarkerTiming, Profile, ProfilerSession, ProfilerTime,
    StartParams, add_text_marker, add_untyped_marker, gecko_profiler_category,
};
use serde_json::{Value, json};

/// The threads that both sides of a cut must have samples of.
const THREADS: [&str; 2] = ["busy", "sleeper"];
/// Tolerance when times in two profiles are compared, in ms. The rows of a cut run are spaced anew.
const TOLERANCE_MS: f64 = 1e-5;
/// The text of a marker. No function's name contains it.
const OLD_TEXT: &str = "the text of an old marker";

/// How much the busy thread works before and after the time `since`.
#[derive(Clone, Copy)]
struct Phases {
    long_ago: Duration,
    /// Twice: before and after the profile in the middle.
    recently: [Duration; 2],
    /// Minimum number of samples of each thread before and after the time `since`.
    samples: usize,
}

impl Phases {
    /// Works under a label with this text, at least for `time`. Returns once the profile has enough
    /// samples with that label, and of the sleeper, from `since_ms` on.
    #[inline(always)]
    fn work(&self, text: &str, time: Duration, since_ms: impl Fn(&Read) -> f64) {
        let _label =
            AutoProfilerLabel::with_dynamic("phase", text, gecko_profiler_category!(Other));
        work_for(time);
        wait_until("both threads have enough samples", || {
            work_for(Duration::from_millis(1));
            let has_enough = |read: &Read| {
                let since_ms = since_ms(read);
                let has_label = |sample: &&Sample| {
                    let mut frames = sample.stack.iter();
                    sample.time_ms >= since_ms && frames.any(|frame| frame.ends_with(text))
                };
                read.samples("busy").iter().filter(has_label).count() >= self.samples
                    && times_since(read, "sleeper", since_ms).len() >= self.samples
            };
            self.samples == 0 || has_enough(&Read::of_running())
        });
    }
}

#[inline(never)]
fn works_long_ago(phases: &Phases) {
    phases.work("first", phases.long_ago, |_| 0.0);
    std::hint::black_box("long ago");
}

#[inline(never)]
fn works_lately(phases: &Phases, time: Duration) {
    phases.work("second", time, marked_since_ms);
    std::hint::black_box("lately");
}

/// Returns the time of the marker "since".
fn marked_since_ms(read: &Read) -> f64 {
    read.markers("busy")
        .iter()
        .find(|marker| marker.0 == "since")
        .expect("the marker")
        .1
}

/// Returns the times of a thread's samples from `since_ms` on.
fn times_since(read: &Read, thread: &str, since_ms: f64) -> Vec<f64> {
    read.samples(thread)
        .iter()
        .map(|sample| sample.time_ms)
        .filter(|&time_ms| time_ms >= since_ms)
        .collect()
}

fn add(name: &str, timing: MarkerTiming) {
    add_untyped_marker(
        name,
        gecko_profiler_category!(Other),
        MarkerOptions::default().with_timing(timing),
    );
}

/// What the busy thread returns.
struct Lived {
    /// A time between the two phases. A marker has the same time.
    since: ProfilerTime,
    /// A profile, without names, that was taken while the thread worked lately.
    middle: Read,
    /// A time just before the last three markers.
    before_last_markers: ProfilerTime,
}

fn live(phases: &Phases) -> Lived {
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
        OLD_TEXT,
    );
    add("short", MarkerTiming::interval_until_now_from(begin));
    add("begin", MarkerTiming::interval_start(begin));
    add("end long ago", MarkerTiming::interval_end(begin));
    works_long_ago(phases);
    let since = ProfilerTime::now();
    add("since", MarkerTiming::instant_at(since));
    let [before_middle, after_middle] = phases.recently;
    works_lately(phases, before_middle);
    let middle = Read::of_running();
    works_lately(phases, after_middle);
    let before_last_markers = ProfilerTime::now();
    add("long", MarkerTiming::interval_until_now_from(begin));
    add("end", MarkerTiming::interval_end(ProfilerTime::now()));
    add("at last", MarkerTiming::instant_now());
    Lived {
        since,
        middle,
        before_last_markers,
    }
}

/// Returns whether the kernel reports that the thread sleeps.
fn is_asleep(thread: ThreadId) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", thread.to_number()));
    let stat = stat.expect("the thread exists");
    // The name before the state is in parentheses and may contain any character.
    let (_, state) = stat.rsplit_once(") ").expect("a state");
    state.starts_with('S')
}

struct Recorded {
    read: Read,
    profile: Profile,
    lived: Lived,
    /// A time after the end of the session.
    time_after_end: ProfilerTime,
}

fn record(params: StartParams, phases: Phases) -> Recorded {
    let (wake, woken) = channel::<()>();
    let (send_id, id) = channel();
    let sleeper = std::thread::spawn(move || {
        gekkota::register_thread("sleeper");
        send_id
            .send(profiler_current_thread_id())
            .expect("the test waits");
        let _ = woken.recv();
    });
    let sleeper_id = id.recv().expect("the sleeper's id");
    wait_until("the sleeper sleeps", || is_asleep(sleeper_id));
    let session = ProfilerSession::start(params).expect("start");
    let lived = std::thread::spawn(move || live(&phases))
        .join()
        .expect("thread");
    let profile = session.finish().expect("profile");
    let time_after_end = ProfilerTime::now();
    drop(wake);
    sleeper.join().expect("thread");
    Recorded {
        read: Read::from_profile(&profile),
        profile,
        lived,
        time_after_end,
    }
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
fn duration_limit_drops_older_data() {
    isolated(|| {
        // If the machine delays the test, data of the last phase is older than the limit. The next
        // attempt has a longer limit.
        let limits = (0..8u32).map(|attempt| Duration::from_millis(400u64 << attempt));
        let limits: Vec<_> = limits.collect();
        assert!(
            limits.iter().any(|&limit| limits_duration(limit)),
            "no profile is conclusive at any of the limits {limits:?}"
        );
    });
}

/// Records a session with this limit and checks its profile. Returns false if the machine was so
/// slow that the profile cannot contain what the checks look for.
fn limits_duration(limit: Duration) -> bool {
    let phases = Phases {
        long_ago: limit,
        recently: [limit * 2, limit / 4],
        samples: 0,
    };
    let Recorded {
        read,
        profile,
        lived,
        time_after_end,
    } = record(StartParams::default().duration(limit), phases);
    let limit_ms = limit.as_secs_f64() * 1e3;
    let meta = &read.0["meta"];
    let number = |name: &str| {
        meta[name]
            .as_f64()
            .unwrap_or_else(|| panic!("{name} in {meta}"))
    };
    assert_eq!(
        meta["configuration"]["duration"].as_f64(),
        Some(limit.as_secs_f64())
    );
    let (end, cut) = (number("profilingEndTime"), number("contentEarliestTime"));
    assert!(
        (end - cut - limit_ms).abs() < 0.001,
        "from {cut} to {end}, limit {limit_ms} ms"
    );
    assert!(
        number("profilingStartTime") < cut - limit_ms,
        "the session began earlier"
    );
    // The profile in the middle begins earlier. Its samples from the cut on must not be missing.
    let expected = THREADS.map(|thread| times_since(&lived.middle, thread, cut + TOLERANCE_MS));
    let rows = read.0["counters"][0]["samples"]["data"].as_array();
    let is_conclusive = time_after_end.duration_since(lived.before_last_markers) < limit
        && expected.iter().all(|times| !times.is_empty())
        && has_string(&read, "works_lately")
        && rows.is_some_and(|rows| !rows.is_empty());
    if !is_conclusive {
        println!("the attempt with a limit of {limit:?} was delayed");
        return false;
    }

    for (thread, expected) in THREADS.iter().zip(expected) {
        let times = times_since(&read, thread, 0.0);
        assert!(
            times
                .iter()
                .all(|&time_ms| time_ms >= cut && time_ms <= end),
            "{thread}: from {cut} to {end}: {times:?}"
        );
        for time_ms in expected {
            let next = times.partition_point(|&other_ms| other_ms < time_ms - TOLERANCE_MS);
            assert!(
                times
                    .get(next)
                    .is_some_and(|other_ms| other_ms - time_ms <= TOLERANCE_MS),
                "{thread}: the sample at {time_ms} is missing, cut at {cut}: {times:?}"
            );
        }
    }
    let asleep = read.samples("sleeper");
    assert!(
        asleep
            .iter()
            .all(|sample| sample.stack == asleep[0].stack && sample.stack.len() > 3)
    );
    assert!(!has_string(&read, "works_long_ago"));
    assert_eq!(names(&read), ["long", "end", "at last"]);
    assert!(!has_string(&read, OLD_TEXT));
    assert_eq!(
        meta["markerSchema"].as_array().map(Vec::len),
        Some(0),
        "no text marker remains"
    );
    assert!(
        !read
            .threads()
            .iter()
            .any(|thread| thread["name"] == "ended")
    );

    let rows = rows.expect("the process's CPU time");
    assert!(rows.iter().all(|row| row[0].as_f64().expect("time") >= cut));
    assert_eq!(
        rows[0][1].as_i64(),
        Some(0),
        "growth before the first row belongs to no row"
    );
    let summary = profile.summarize();
    let busy = summary
        .iter()
        .find(|thread| thread.name == "busy")
        .expect("a summary");
    // Without the row of the CPU time after the last sample.
    let samples = read.samples("busy");
    let between = |sample: &&Sample| sample.stack.iter().any(|name| name.contains("ran between"));
    let rows = samples.len() - samples.iter().filter(between).count();
    assert_eq!(busy.samples, rows);

    // The limit excludes more than `since` would.
    let same = written_since(&profile, lived.since);
    assert_eq!(
        same.0["meta"]["contentEarliestTime"],
        meta["contentEarliestTime"]
    );
    assert_eq!(names(&same), names(&read));
    true
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
        "the file has the same contents"
    );
    std::fs::remove_file(path).expect("removed");
    Read::from_text(&text)
}

fn check_since_drops_older_data(whole: &Read, profile: &Profile, since: ProfilerTime) {
    let since_ms = marked_since_ms(whole);
    let read = written_since(profile, since);
    assert_eq!(
        read.0["meta"]["contentEarliestTime"].as_f64(),
        Some(since_ms)
    );
    assert_eq!(
        read.0["meta"]["profilingEndTime"],
        whole.0["meta"]["profilingEndTime"]
    );
    for thread in THREADS {
        let (all, expected) = (
            times_since(whole, thread, 0.0),
            times_since(whole, thread, since_ms),
        );
        let (before, left) = (all.len(), times_since(&read, thread, 0.0));
        assert!(
            expected.len() > 10 && before - expected.len() > 10,
            "{thread}: both sides have samples"
        );
        assert!(
            left.len() == expected.len(),
            "{thread}: {} of {}",
            left.len(),
            expected.len()
        );
        assert!(
            left.iter()
                .zip(&expected)
                .all(|(one, other)| (one - other).abs() < TOLERANCE_MS),
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
    let rows = read.0["counters"][0]["samples"]["data"].as_array();
    assert!(
        rows.into_iter()
            .flatten()
            .all(|row| row[0].as_f64().expect("time") >= since_ms)
    );

    // The profile itself is unchanged.
    assert_eq!(names(&Read::from_profile(profile)), names(whole));
    // A time before the session cuts nothing, and a time in the future cuts everything.
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
fn unlimited_session_is_complete_and_since_cuts_it() {
    isolated(|| {
        let phases = Phases {
            long_ago: Duration::from_millis(50),
            recently: [Duration::from_millis(50); 2],
            samples: 20,
        };
        let Recorded {
            read,
            profile,
            lived,
            ..
        } = record(StartParams::default().duration(Duration::ZERO), phases);
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
            "sorted by the latest time of each marker"
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
        check_since_drops_older_data(&read, &profile, lived.since);

        // A limit that the session has not reached cuts nothing.
        let phases = Phases {
            samples: 0,
            ..phases
        };
        let Recorded { read, .. } = record(
            StartParams::default().duration(Duration::from_secs(3600)),
            phases,
        );
        assert!(read.0["meta"]["contentEarliestTime"].is_null() && names(&read).len() == 9);
    });
}
