//! Counters of the application are in the profile with each change.

use gekkota::counter::{
    CounterUnit, OwnedProfilerCounter, OwnedProfilerCounterTotal, ProfilerCounter,
    ProfilerCounterTotal,
};
use gekkota::profile::Format;
use gekkota::schema::GraphColor;
use gekkota::{ProfilerSession, StartParams, profiler_pause, profiler_resume};
use serde_json::Value;

use crate::common::counters::{counter, counters_of, sums};
use crate::common::{Read, in_forked_child, isolated, one_loop};

static LEVEL: ProfilerCounter = ProfilerCounter::new("queue", "Tests", "jobs that wait");
static TOTAL: ProfilerCounterTotal = ProfilerCounterTotal::new("sent", "Tests", "bytes sent")
    .with_unit(CounterUnit::Bytes)
    .with_color(GraphColor::Teal);

#[test]
fn changes_of_counters_add_up_to_their_values() {
    isolated(|| {
        LEVEL.set(40);
        TOTAL.add(1_000_000);
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        for step in 1..=20 {
            LEVEL.add(if step % 2 == 0 { 3 } else { -1 });
            TOTAL.add(step);
            one_loop();
        }
        let read = Read::from_profile(&session.finish().expect("a profile"));
        assert_eq!(sums(counter(&read.0, "queue")), [40 + 20, 0]);
        assert_eq!(sums(counter(&read.0, "sent")), [210, 20]);
        let total = counter(&read.0, "sent");
        assert_eq!(total["category"], "Tests");
        assert_eq!(total["description"], "bytes sent");
        let schema = serde_json::json!({"time": 0, "count": 1, "number": 2});
        assert_eq!(total["samples"]["schema"], schema);
    });
}

#[test]
fn counters_of_all_threads_and_the_last_change_are_counted() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| TOTAL.add(2)));
            }
        });
        let read = Read::from_profile(&session.finish().expect("a profile"));
        assert_eq!(sums(counter(&read.0, "sent")), [80_000, 40_000]);
    });
}

#[test]
fn value_that_wraps_around_is_right() {
    isolated(|| {
        LEVEL.set(i64::MAX);
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        one_loop();
        LEVEL.add(5);
        let read = Read::from_profile(&session.finish().expect("a profile"));
        assert_eq!(sums(counter(&read.0, "queue"))[0], i64::MIN + 4);
        let rows = counter(&read.0, "queue")["samples"]["data"].as_array();
        let last_change = rows.into_iter().flatten().rev().find(|row| row[1] != 0);
        assert_eq!(last_change.expect("a change")[1], 5);
    });
}

#[test]
fn dropped_counter_stays_and_a_new_one_is_another() {
    isolated(|| {
        let new = || OwnedProfilerCounterTotal::new("shard", "Tests", "entries");
        let before = new();
        before.add(100);
        drop(before);
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let first = new();
        first.add(3);
        one_loop();
        first.add(4);
        drop(first);
        let second = new();
        second.add(10);
        drop(second);
        one_loop();
        let third = OwnedProfilerCounter::new("shard", "Tests", "entries");
        third.set(-2);
        let read = Read::from_profile(&session.finish().expect("a profile"));
        let mut all: Vec<_> = counters_of(&read.0, "shard")
            .into_iter()
            .map(sums)
            .collect();
        all.sort_unstable();
        assert_eq!(all, [[-2, 0], [7, 2], [10, 1]]);
        drop(third);
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        one_loop();
        let read = Read::from_profile(&session.finish().expect("a profile"));
        assert!(counters_of(&read.0, "shard").is_empty());
    });
}

#[test]
fn counter_that_does_not_change_has_few_rows() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        LEVEL.set(1);
        for _ in 0..50 {
            one_loop();
        }
        let read = Read::from_profile(&session.finish().expect("a profile"));
        let rows = counter(&read.0, "queue")["samples"]["data"].as_array();
        assert!(rows.expect("rows").len() <= 5, "{rows:?}");
    });
}

#[test]
fn growth_during_a_pause_is_in_the_first_row_after_it() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        TOTAL.add(1);
        one_loop();
        profiler_pause();
        TOTAL.add(10);
        one_loop();
        profiler_resume();
        one_loop();
        let read = Read::from_profile(&session.finish().expect("a profile"));
        assert_eq!(sums(counter(&read.0, "sent")), [11, 2]);
        let pause = &read.0["pausedRanges"][0];
        let [begin, end] = ["startTime", "endTime"].map(|key| pause[key].as_f64().expect("a time"));
        let rows = counter(&read.0, "sent")["samples"]["data"].as_array();
        let rows = rows.expect("rows").iter();
        let rows: Vec<_> = rows
            .map(|row| (row[0].as_f64().expect("a time"), row[1].as_i64()))
            .collect();
        let after = rows.iter().position(|row| row.0 >= end).expect("a row");
        assert_eq!(rows[after].1, Some(10), "{rows:?}");
        assert!(rows[..after].iter().all(|row| row.0 <= begin), "{rows:?}");
    });
}

#[test]
fn counters_count_in_a_forked_child() {
    isolated(|| {
        let owned = OwnedProfilerCounterTotal::new("shard", "Tests", "entries");
        owned.add(5);
        LEVEL.set(40);
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        one_loop();
        let record = || {
            let session = ProfilerSession::start(StartParams::default()).expect("start");
            LEVEL.add(2);
            TOTAL.add(7);
            owned.add(3);
            let read = Read::from_profile(&session.finish().expect("a profile"));
            let of = |name| sums(counter(&read.0, name));
            format!("{:?} {:?} {:?}", of("queue"), of("sent"), of("shard"))
        };
        assert_eq!(in_forked_child(record), "[42, 0] [7, 1] [3, 1]");
        owned.add(1);
        let read = Read::from_profile(&session.finish().expect("a profile"));
        assert_eq!(sums(counter(&read.0, "queue")), [40, 0]);
        assert_eq!(sums(counter(&read.0, "shard")), [1, 1]);
        assert!(counters_of(&read.0, "sent").is_empty());
    });
}

#[test]
fn long_texts_are_cut() {
    isolated(|| {
        const MAX_TEXT_BYTES: usize = 512;
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        // The last character that fits in part is left out.
        let text = "ü".repeat(MAX_TEXT_BYTES);
        let category = format!("x{text}");
        let owned = OwnedProfilerCounterTotal::new(&text, &category, "d");
        owned.add(5);
        let read = Read::from_profile(&session.finish().expect("a profile"));
        let cut = counter(&read.0, &"ü".repeat(MAX_TEXT_BYTES / 2));
        let cut_category = format!("x{}", "ü".repeat(MAX_TEXT_BYTES / 2 - 1));
        assert_eq!(cut["category"], cut_category.as_str());
        assert_eq!(sums(cut), [5, 1]);
    });
}

/// The name of a counter that is one of many.
const MANY: &str = "one of many";

fn many(count: usize) -> Vec<OwnedProfilerCounter> {
    let one = |_| OwnedProfilerCounter::new(MANY, "Tests", "");
    let counters: Vec<_> = (0..count).map(one).collect();
    counters.iter().for_each(|counter| counter.set(1));
    counters
}

#[test]
fn counters_beyond_the_limits_are_not_recorded() {
    const MAX_LIVE: usize = 10_000;
    const MAX_ENDED: usize = 1_000;
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let mut counters = many(MAX_LIVE + 5);
        LEVEL.set(40);
        one_loop();
        let recorded = |read: &Read| {
            let counters = ["queue", MANY].map(|name| counters_of(&read.0, name));
            counters.map(|counters| counters.into_iter().map(sums).collect::<Vec<_>>())
        };
        let [level, all] = recorded(&Read::of_running());
        assert!(level.is_empty());
        assert_eq!(all, vec![[1, 0]; MAX_LIVE]);
        // The last counters were refused, and their drops leave no place.
        counters.truncate(MAX_LIVE);
        LEVEL.add(1);
        // These drops leave places, and only the newest dropped counters are kept.
        counters.truncate(MAX_LIVE - MAX_ENDED - 500);
        LEVEL.add(1);
        one_loop();
        let [level, all] = recorded(&Read::of_running());
        assert_eq!(level, [[42, 0]]);
        assert_eq!(all, vec![[1, 0]; MAX_LIVE - 500]);
        let read = Read::from_profile(&session.finish().expect("a profile"));
        let [level, all] = recorded(&read);
        assert_eq!((level, all.len()), (vec![[42, 0]], MAX_LIVE - 500));
        // Dropped counters are not kept for the next session.
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let read = Read::from_profile(&session.finish().expect("a profile"));
        let [_, all] = recorded(&read);
        assert_eq!(all.len(), MAX_LIVE - MAX_ENDED - 500);
    });
}

/// Ends the session, and returns its profile in the processed format.
fn processed(session: ProfilerSession) -> Value {
    let profile = session.finish().expect("a profile");
    let mut bytes = Vec::new();
    profile
        .write(Format::Processed, &mut bytes)
        .expect("a text");
    serde_json::from_slice(&bytes).expect("JSON")
}

#[test]
fn processed_format_has_unit_color_and_kind() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        LEVEL.set(5);
        TOTAL.add(1);
        one_loop();
        let processed = processed(session);
        let display = |name| &counter(&processed, name)["display"];
        let looks = |name| ["graphType", "unit", "color", "label"].map(|key| &display(name)[key]);
        assert_eq!(looks("queue"), ["line-accumulated", "", "grey", "queue"]);
        assert_eq!(looks("sent"), ["line-rate", "bytes", "teal", "sent"]);
    });
}

#[test]
fn counters_are_in_the_processed_format_if_no_thread_is_recorded() {
    isolated(|| {
        let params = StartParams::default().filters(["no thread has this name"]);
        let session = ProfilerSession::start(params).expect("start");
        LEVEL.set(5);
        one_loop();
        let processed = processed(session);
        let threads = processed["threads"].as_array().expect("threads");
        assert_eq!(threads.len(), 1);
        assert_eq!(threads[0]["isMainThread"], true);
        assert_eq!(threads[0]["samples"]["length"], 0);
        let queue = counter(&processed, "queue");
        assert_eq!(queue["mainThreadIndex"], 0);
        let changes = queue["samples"]["count"].as_array().expect("changes");
        let sum: i64 = changes.iter().filter_map(Value::as_i64).sum();
        assert_eq!(sum, 5);
    });
}
