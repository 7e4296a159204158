//! Several threads take profiles at once while others write. Each profile is whole and continues
//! the earlier ones.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Read, Sleeper, isolated, samples_of, wait_until, work};
use gekkota::{
    MarkerOptions, ProfilerSession, StartParams, add_text_marker, gecko_profiler_category,
};
use serde_json::Value;

const READERS: usize = 3;
/// Number of profiles that each reader takes.
const PROFILES: RangeInclusive<usize> = 4..=12;

/// Maximum number of markers of a thread, so that the large buffer has space for all of them.
const MAX_MARKERS: usize = 100_000;
/// Maximum number of short-lived threads, for the same reason.
const MAX_SHORT_THREADS: usize = 3000;

static END: AtomicBool = AtomicBool::new(false);
static LONGEST_CALL_NS: AtomicU64 = AtomicU64::new(0);

fn is_running() -> bool {
    !END.load(Ordering::Relaxed)
}

/// Adds a marker whose text shows whether it is whole.
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

/// Returns the number in a marker's text, and checks that the text is whole.
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
    while is_running() {
        if number < MAX_MARKERS {
            (number..number + 20).for_each(mark);
            number += 20;
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
        if !is_running() {
            return;
        }
    }
}

fn come_and_go() {
    let mut threads = 0..MAX_SHORT_THREADS;
    while is_running() {
        std::thread::sleep(Duration::from_millis(3));
        if threads.next().is_none() {
            continue;
        }
        let short = || {
            gekkota::register_thread("short");
            (0..30).for_each(mark);
            works(3);
            gekkota::unregister_thread();
        };
        std::thread::spawn(short).join().expect("a thread");
    }
}

/// A sample: its time, CPU time and stack; or a marker: its time and number.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Row {
    time_ms: f64,
    cpu_ns: Option<u64>,
    what: u64,
}

/// Identifies a thread: its id and registration time. Its name may change, when a thread registers
/// that was found before.
type Key = (u64, String);

#[derive(Debug)]
struct TakenThread {
    name: String,
    /// Samples and markers.
    rows: [Vec<Row>; 2],
}

#[derive(Debug)]
struct Taken {
    /// Time at which the profile was taken.
    end_ms: f64,
    /// Nothing later is missing. `None` if nothing at all is missing.
    complete_since_ms: Option<f64>,
    recycled_chunks: u64,
    threads: BTreeMap<Key, TakenThread>,
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
            let taken = TakenThread { name, rows };
            assert!(
                threads.insert(key, taken).is_none(),
                "a thread occurs twice"
            );
        }
        Self {
            end_ms: meta["profilingEndTime"].as_f64().expect("a time"),
            complete_since_ms: meta["contentEarliestTime"].as_f64(),
            recycled_chunks: log["recycled_chunks"].as_u64().expect("a number"),
            threads,
        }
    }

    /// Checks that each thread has the same rows as in an earlier profile, except for recycled rows
    /// at the front, and new rows behind them.
    fn assert_continues(&self, earlier: &Self) {
        for (key, before) in &earlier.threads {
            let none = [Vec::new(), Vec::new()];
            let after = self.threads.get(key).map_or(&none, |thread| &thread.rows);
            for (before, after) in before.rows.iter().zip(after) {
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
                        .unwrap_or_else(|| panic!("{key:?}: {gone} rows are missing"));
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
    while count < *PROFILES.start() || is_running() && count < *PROFILES.end() {
        let profile = Taken::now();
        taken.lock().expect("not poisoned").push(profile);
        count += 1;
    }
}

/// Stops all threads when it is dropped, also during a panic, because the scope waits for them.
struct EndOnDrop;

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        END.store(true, Ordering::Relaxed);
    }
}

/// Returns whether the profile has rows of each kind of thread.
fn has_all_threads(taken: &Taken) -> bool {
    ["marks 1", "marks 2", "runs", "sleeper", "short"]
        .iter()
        .all(|name| {
            let mut threads = taken.threads.values().filter(|thread| thread.name == *name);
            threads.any(has_rows)
        })
}

fn has_rows(thread: &TakenThread) -> bool {
    thread.rows.iter().any(|rows| !rows.is_empty())
}

/// Returns the number of profiles taken, and the number of recycled chunks in the last one.
fn take_side_by_side(capacity_bytes: u64, is_recycled: bool) -> (usize, u64) {
    END.store(false, Ordering::Relaxed);
    let session = ProfilerSession::start(StartParams::default().capacity_bytes(capacity_bytes))
        .expect("start");
    let _sleeper = Sleeper::start("sleeper");
    let taken = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let end = EndOnDrop;
        scope.spawn(|| marks("marks 1"));
        scope.spawn(|| marks("marks 2"));
        scope.spawn(|| runs("runs"));
        scope.spawn(come_and_go);
        let readers: Vec<_> = (0..READERS)
            .map(|_| scope.spawn(|| take_profiles(&taken)))
            .collect();
        std::thread::sleep(Duration::from_millis(500));
        let mut has_begun = false;
        wait_until(
            "each thread is in a profile, and the small buffer is full",
            || {
                let profile = Taken::now();
                has_begun |= has_all_threads(&profile);
                has_begun && (!is_recycled || profile.recycled_chunks > 0)
            },
        );
        drop(end);
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
        two[1].assert_continues(&two[0]);
        last.assert_continues(&two[0]);
    }
    assert!(last.threads.len() > 4, "{}", last.threads.len());
    assert!(last.recycled_chunks > 0 || last.threads.values().all(has_rows));
    (taken.len(), last.recycled_chunks)
}

fn check(capacity_bytes: u64, is_recycled: bool) {
    let (profiles, recycled_chunks) = take_side_by_side(capacity_bytes, is_recycled);
    println!(
        "{profiles} profiles, {recycled_chunks} chunks of {capacity_bytes} bytes were recycled; the longest marker call took {} ns",
        LONGEST_CALL_NS.load(Ordering::Relaxed)
    );
    assert_eq!(recycled_chunks > 0, is_recycled);
}

#[test]
fn concurrent_profiles_are_whole_and_continue_each_other() {
    isolated(|| check(128 << 20, false));
}

#[test]
fn concurrent_profiles_of_a_full_buffer_are_whole_and_continue_each_other() {
    isolated(|| check(256 << 10, true));
}
