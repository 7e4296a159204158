//! Several threads take profiles at once, while others write: each profile is whole, and one goes on where another ends.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Read, Sleeper, isolated, samples_of, work};
use gekkota::{
    MarkerOptions, ProfilerSession, StartParams, add_text_marker, gecko_profiler_category,
};
use serde_json::Value;

const READERS: usize = 3;
/// So many of each reader's.
const PROFILES: RangeInclusive<usize> = 4..=50;

static END: AtomicBool = AtomicBool::new(false);
static LONGEST_CALL_NS: AtomicU64 = AtomicU64::new(0);

fn goes_on() -> bool {
    !END.load(Ordering::Relaxed)
}

/// A marker whose text tells whether it is whole.
fn mark(number: usize) {
    let text = format!("{number} {} {number}", "x".repeat(number % 60));
    let begin = Instant::now();
    add_text_marker(
        "M",
        gecko_profiler_category!(Other),
        MarkerOptions::default(),
        &text,
    );
    LONGEST_CALL_NS.fetch_max(begin.elapsed().as_nanos() as u64, Ordering::Relaxed);
}

fn number_of(text: &str) -> usize {
    let [number, filling, end] = text.splitn(3, ' ').collect::<Vec<_>>()[..] else {
        panic!("{text:?}")
    };
    let number = number.parse().expect("a number");
    assert_eq!(
        (filling.to_owned(), end.parse()),
        ("x".repeat(number % 60), Ok(number))
    );
    number
}

fn marks(name: &str) {
    gekkota::register_thread(name);
    let mut number = 0;
    while goes_on() {
        for _ in 0..20 {
            mark(number);
            number += 1;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[inline(never)]
fn works(depth: u32) {
    if depth == 0 {
        _ = work(20_000)
    } else {
        works(depth - 1)
    }
    std::hint::black_box(depth);
}

fn runs(name: &str) {
    gekkota::register_thread(name);
    for round in 0.. {
        works(round % 7);
        if !goes_on() {
            return;
        }
    }
}

fn come_and_go() {
    while goes_on() {
        let short = || {
            gekkota::register_thread("short");
            (0..30).for_each(mark);
            works(3);
            gekkota::unregister_thread();
        };
        std::thread::spawn(short).join().expect("a thread");
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// A sample: its time, CPU time and stack; or a marker: its time and number.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Row {
    time_ms: f64,
    cpu_ns: Option<u64>,
    what: u64,
}

/// Of a thread by its id, name and beginning: samples and markers.
type Key = (u64, String, String);

#[derive(Debug)]
struct Taken {
    end_ms: f64,
    /// From then on nothing is missing.
    complete_since_ms: Option<f64>,
    recycled_chunks: u64,
    threads: BTreeMap<Key, [Vec<Row>; 2]>,
}

fn samples(thread: &Value) -> Vec<Row> {
    let hash = |stack: &Vec<String>| {
        let mut hasher = DefaultHasher::new();
        stack.hash(&mut hasher);
        hasher.finish()
    };
    let rows = samples_of(thread).into_iter();
    rows.map(|row| Row {
        time_ms: row.time_ms,
        cpu_ns: row.cpu_ns,
        what: hash(&row.stack),
    })
    .collect()
}

fn markers(thread: &Value) -> Vec<Row> {
    let rows = thread["markers"]["data"].as_array().expect("rows").iter();
    let row = |row: &Value| {
        let text = row[5]["name"]
            .as_u64()
            .map(|index| &thread["stringTable"][index as usize]);
        let what = number_of(text.and_then(Value::as_str).expect("a text")) as u64;
        Row {
            time_ms: row[1].as_f64().expect("a time"),
            cpu_ns: None,
            what,
        }
    };
    rows.map(row).collect()
}

impl Taken {
    fn now() -> Self {
        let read = Read::of_running();
        let meta = &read.0["meta"];
        let log = &read.0["profilingLog"][std::process::id().to_string()]["buffer"];
        assert_eq!(
            (&log["malformed_entries"], &log["dropped_entries"]),
            (&0.into(), &0.into())
        );
        let mut threads = BTreeMap::new();
        for thread in read
            .threads()
            .iter()
            .filter(|thread| thread["registerTime"].is_f64())
        {
            let name = thread["name"].as_str().expect("a name").to_owned();
            let key = (
                thread["tid"].as_u64().expect("an id"),
                name,
                thread["registerTime"].to_string(),
            );
            let rows = [samples(thread), markers(thread)];
            assert!(
                rows.iter()
                    .all(|rows| rows.is_sorted_by_key(|row| row.time_ms)),
                "{key:?}"
            );
            assert!(
                rows[1].windows(2).all(|two| two[0].what + 1 == two[1].what),
                "{key:?}: a marker is missing"
            );
            assert!(
                threads.insert(key, rows).is_none(),
                "a thread is there twice"
            );
        }
        Self {
            end_ms: meta["profilingEndTime"].as_f64().expect("a time"),
            complete_since_ms: meta["contentEarliestTime"].as_f64(),
            recycled_chunks: log["recycled_chunks"].as_u64().expect("a number"),
            threads,
        }
    }

    /// What it has of a thread is what an earlier one had, but for what was recycled off the front, and more.
    fn goes_on_after(&self, earlier: &Self) {
        for (key, before) in &earlier.threads {
            let none = [Vec::new(), Vec::new()];
            let after = self.threads.get(key).unwrap_or(&none);
            for (before, after) in before.iter().zip(after) {
                let gone = match after.first() {
                    Some(first) => before
                        .iter()
                        .position(|row| row == first)
                        .unwrap_or(before.len()),
                    None => before.len(),
                };
                if gone > 0 {
                    let since_ms = self
                        .complete_since_ms
                        .unwrap_or_else(|| panic!("{key:?}: {gone} are missing"));
                    let last = before[gone - 1];
                    assert!(
                        last.time_ms <= since_ms,
                        "{key:?}: {last:?} is missing, complete since {since_ms}"
                    );
                }
                let (left, common) = (
                    &before[gone..],
                    &after[..(before.len() - gone).min(after.len())],
                );
                assert_eq!(left, common, "{key:?}");
            }
        }
    }
}

fn take_profiles(taken: &Mutex<Vec<Taken>>) {
    let mut count = 0;
    while count < *PROFILES.start() || goes_on() && count < *PROFILES.end() {
        let profile = Taken::now();
        taken.lock().expect("not poisoned").push(profile);
        count += 1;
    }
}

/// Gives how many profiles there were, and how many chunks were recycled in the end.
fn side_by_side(capacity_bytes: u64) -> (usize, u64) {
    END.store(false, Ordering::Relaxed);
    let session = ProfilerSession::start(StartParams::default().capacity_bytes(capacity_bytes))
        .expect("start");
    let _sleeper = Sleeper::start("sleeper");
    let taken = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| marks("marks 1"));
        scope.spawn(|| marks("marks 2"));
        scope.spawn(|| runs("runs"));
        scope.spawn(come_and_go);
        let readers: Vec<_> = (0..READERS)
            .map(|_| scope.spawn(|| take_profiles(&taken)))
            .collect();
        std::thread::sleep(Duration::from_millis(1500));
        END.store(true, Ordering::Relaxed);
        readers
            .into_iter()
            .for_each(|reader| reader.join().expect("each profile is whole"));
    });
    let mut taken = taken.into_inner().expect("not poisoned");
    taken.push(Taken::now());
    drop(session);
    taken.sort_by(|one, other| one.end_ms.total_cmp(&other.end_ms));
    let last = taken.last().expect("profiles");
    for two in taken.windows(2) {
        two[1].goes_on_after(&two[0]);
        last.goes_on_after(&two[0]);
    }
    assert!(last.threads.len() > 4, "{}", last.threads.len());
    let has_rows = |rows: &[Vec<Row>; 2]| rows.iter().any(|rows| !rows.is_empty());
    assert!(last.recycled_chunks > 0 || last.threads.values().all(has_rows));
    (taken.len(), last.recycled_chunks)
}

fn check(capacity_bytes: u64, is_recycled: bool) {
    let (profiles, recycled_chunks) = side_by_side(capacity_bytes);
    println!(
        "{profiles} profiles, {recycled_chunks} chunks of {capacity_bytes} bytes were recycled; the longest call of a marker took {} ns",
        LONGEST_CALL_NS.load(Ordering::Relaxed)
    );
    assert_eq!(recycled_chunks > 0, is_recycled);
}

#[test]
fn each_profile_is_whole_and_goes_on_where_another_ends() {
    isolated(|| check(128 << 20, false));
}

#[test]
fn each_profile_is_whole_and_goes_on_where_another_ends_in_a_full_buffer() {
    isolated(|| check(256 << 10, true));
}
