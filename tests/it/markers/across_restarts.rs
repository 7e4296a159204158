//! Sixteen threads write markers while they end and others come, while the profiler starts anew a hundred times, and while
//! profiles are taken: each marker is in the session that it belongs to, whole and once, and in no other. Where there is no room for
//! all of them, the profile says how many it lost, and those are the oldest of each thread's.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use crate::common::{Read, isolated, wait_until};
use gekkota::{
    MarkerOptions, MarkerStack, StartParams, ThreadGuard, add_marker, add_text_marker,
    add_untyped_marker, gecko_profiler_category, profiler_get_buffer_info, profiler_pause,
    profiler_start, profiler_stop,
};
use serde_json::Value;

const WRITERS: usize = 16;
const SESSIONS: u64 = 100;
/// After so many a writer's thread ends, and another goes on.
const MARKERS_OF_A_THREAD: u64 = 700;

const SMALL_SESSIONS: u64 = 20;
const SMALL_CAPACITY: u64 = 512 << 10;

gekkota::marker_type! {
    /// Says the same twice, so that a part of another one would be seen.
    struct Numbered {
        number: u64 => "Number", Integer;
        text: String => "Text", String;
    }
}

/// Odd while a session takes all markers; even from before its last profile until after the next one's start.
static EPOCH: AtomicU64 = AtomicU64::new(0);
static END: AtomicBool = AtomicBool::new(false);
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

/// A marker that was written, and what the epoch was before and after.
type Written = (u64, u64, u64);

fn text_of(number: u64) -> String {
    format!("{number} ").repeat(1 + number as usize % 40)
}

fn write(number: u64) {
    let category = gecko_profiler_category!(Other);
    let options = MarkerOptions::default();
    match number % 4 {
        0 => add_untyped_marker(&format!("u {number}"), category, options),
        1 => add_text_marker("t", category, options, &text_of(number)),
        2 => add_marker(
            "n",
            category,
            options,
            Numbered {
                number,
                text: text_of(number),
            },
        ),
        _ => {
            let options = options
                .with_stack(MarkerStack::NonNative)
                .with_inner_window_id(number);
            add_text_marker("t", category, options, &text_of(number));
        }
    }
}

fn write_some() -> Vec<Written> {
    let _registered = ThreadGuard::register("writer");
    let mut written = Vec::new();
    for _ in 0..MARKERS_OF_A_THREAD {
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let before = EPOCH.load(Ordering::SeqCst);
        write(number);
        written.push((number, before, EPOCH.load(Ordering::SeqCst)));
        if number.is_multiple_of(8) {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    written
}

fn write_until_the_end() -> Vec<Written> {
    let mut written = Vec::new();
    while !END.load(Ordering::Relaxed) {
        written.extend(std::thread::spawn(write_some).join().expect("a writer"));
    }
    written
}

/// The numbers of the profile's markers; each must be whole.
fn numbers(read: &Read) -> Vec<u64> {
    let mut numbers = Vec::new();
    for thread in read.threads() {
        let string =
            |index: &Value| thread["stringTable"][index.as_u64().expect("index") as usize].as_str();
        for row in thread["markers"]["data"].as_array().expect("markers") {
            let name = string(&row[0]).expect("a name");
            let data = &row[5];
            let number = match name {
                "n" => {
                    let number = data["number"].as_u64().expect("a number");
                    assert_eq!(
                        (data["type"].as_str(), data["text"].as_str()),
                        (Some("Numbered"), Some(&*text_of(number)))
                    );
                    number
                }
                "t" => {
                    let text = string(&data["name"]).expect("a text");
                    let number = text
                        .split(' ')
                        .next()
                        .and_then(|digits| digits.parse().ok())
                        .expect("a number");
                    assert_eq!(text, text_of(number));
                    assert_eq!(
                        data["innerWindowID"].as_u64(),
                        (number % 4 == 3).then_some(number)
                    );
                    number
                }
                _ => name
                    .strip_prefix("u ")
                    .and_then(|digits| digits.parse().ok())
                    .expect("a number"),
            };
            numbers.push(number);
        }
    }
    numbers
}

fn assert_no_losses(read: &Read) {
    let losses = &read.0["meta"]["losses"];
    for loss in [
        "malformed_entries",
        "recycled_chunks",
        "dropped_entries",
        "lost_marker_stacks",
    ] {
        assert_eq!(losses[loss], 0, "{losses}");
    }
}

#[test]
fn each_is_in_the_session_that_takes_it() {
    isolated(|| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|_| std::thread::spawn(write_until_the_end))
            .collect();
        let reader = std::thread::spawn(|| {
            let mut snapshots = 0u64;
            while !END.load(Ordering::Relaxed) {
                let options = gekkota::profile::SnapshotOptions::default()
                    .symbolicate(gekkota::profile::Symbolicate::No);
                let mut text = Vec::new();
                if gekkota::profiler_stream_json(&mut text, &options).is_ok() {
                    let read = Read::from_text(&text);
                    numbers(&read);
                    assert_no_losses(&read);
                    snapshots += 1;
                }
            }
            snapshots
        });
        let mut found: Vec<HashSet<u64>> = Vec::new();
        for session in 0..SESSIONS {
            let params = StartParams::default()
                .filters(["writer"])
                .capacity_bytes(128 << 20);
            profiler_start(params).expect("start");
            EPOCH.store(2 * session + 1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(5));
            EPOCH.store(2 * session + 2, Ordering::SeqCst);
            let read = Read::of_running();
            assert_no_losses(&read);
            let numbers = numbers(&read);
            let distinct: HashSet<u64> = numbers.iter().copied().collect();
            assert_eq!(distinct.len(), numbers.len(), "none is there twice");
            found.push(distinct);
            // Each other session ends by the next one's start.
            if session % 2 == 0 {
                profiler_stop();
            }
        }
        END.store(true, Ordering::Relaxed);
        let written: Vec<Written> = writers
            .into_iter()
            .flat_map(|writer| writer.join().expect("a writer"))
            .collect();
        profiler_stop();
        let snapshots = reader.join().expect("a reader");

        let mut sessions_of: HashMap<u64, Vec<u64>> = HashMap::new();
        for (session, numbers) in found.iter().enumerate() {
            numbers
                .iter()
                .for_each(|&number| sessions_of.entry(number).or_default().push(session as u64));
        }
        let (mut certain, mut elsewhere) = (0, 0);
        for (number, before, after) in written {
            let sessions = sessions_of.remove(&number).unwrap_or_default();
            assert!(
                sessions.len() <= 1,
                "marker {number} is in the sessions {sessions:?}"
            );
            if before == after && before % 2 == 1 {
                assert_eq!(sessions, [before / 2], "marker {number}");
                certain += 1;
            } else if let Some(&session) = sessions.first() {
                // In the epochs of a session that takes it: from the one before its first on.
                assert!(
                    before <= 2 * session + 2 && after >= 2 * session,
                    "{number}: {before} to {after}, in {session}"
                );
                elsewhere += 1;
            }
        }
        assert!(
            sessions_of.is_empty(),
            "markers that nobody has written: {sessions_of:?}"
        );
        println!(
            "{certain} markers in their sessions, {elsewhere} at the ends of some, {snapshots} snapshots beside"
        );
        assert!(certain > 2_000 && snapshots > 0, "{certain}, {snapshots}");
    });
}

/// Closed for the writers while a profile is taken that is to account for all, and until the next session takes markers.
static GATE: RwLock<()> = RwLock::new(());

/// What a thread of a writer's wrote: numbers, each with its session, in the order in which they were written.
type WrittenByThread = Vec<(u64, u64)>;

/// Like `write_some`; only, the epoch, here the session's number, does not change while a marker is written.
fn write_some_at_the_gate() -> WrittenByThread {
    let _registered = ThreadGuard::register("writer");
    let mut written = Vec::new();
    for _ in 0..MARKERS_OF_A_THREAD {
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let _open = GATE.read().unwrap_or_else(PoisonError::into_inner);
        write(number);
        written.push((EPOCH.load(Ordering::SeqCst), number));
    }
    written
}

/// What the profile of a session has, and what it says that it lost.
struct Account {
    found: HashSet<u64>,
    put_entries: u64,
    lost_entries: u64,
    lost_marker_stacks: u64,
    recycled_chunks: u64,
}

/// Takes the running session's profile while nobody writes: the sampler has yet to write the stacks that wait.
fn account() -> Account {
    let mut account = None;
    wait_until("each byte is there or was recycled", || {
        account = account_if_complete();
        account.is_some()
    });
    account.expect("it was waited for")
}

/// `None` when bytes were put while they were counted.
fn account_if_complete() -> Option<Account> {
    let read = Read::of_running();
    let log = &read.0["profilingLog"][std::process::id().to_string()]["buffer"];
    let losses = &read.0["meta"]["losses"];
    assert_eq!(
        (&losses["malformed_entries"], &losses["dropped_entries"]),
        (&Value::from(0), &Value::from(0))
    );
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value} in {log}"));
    let entries = log["entries"].as_object().expect("sorts of entries");
    let sum = |what: &str| {
        entries
            .values()
            .map(|sort| number(&sort[what]))
            .sum::<u64>()
    };
    let numbers = numbers(&read);
    let found: HashSet<u64> = numbers.iter().copied().collect();
    assert_eq!(found.len(), numbers.len(), "none is there twice");
    assert_eq!(
        number(&entries["marker"]["count"]),
        numbers.len() as u64,
        "all that are in the buffer are shown"
    );
    let is_complete = sum("bytes") + number(&losses["recycled_bytes"]) == number(&log["put_bytes"]);
    is_complete.then(|| Account {
        found,
        put_entries: number(&log["put_entries"]),
        lost_entries: number(&log["put_entries"]) - sum("count"),
        lost_marker_stacks: number(&losses["lost_marker_stacks"]),
        recycled_chunks: number(&losses["recycled_chunks"]),
    })
}

#[test]
fn what_is_not_there_was_recycled() {
    isolated(|| {
        END.store(false, Ordering::Relaxed);
        let write = || {
            let mut written = Vec::new();
            while !END.load(Ordering::Relaxed) {
                written.push(
                    std::thread::spawn(write_some_at_the_gate)
                        .join()
                        .expect("a writer"),
                );
            }
            written
        };
        let mut closed = GATE.write().ok();
        let writers: Vec<_> = (0..WRITERS).map(|_| std::thread::spawn(write)).collect();
        let mut accounts = Vec::new();
        for session in 0..SMALL_SESSIONS {
            let params = StartParams::default()
                .filters(["writer"])
                .capacity_bytes(SMALL_CAPACITY);
            profiler_start(params).expect("start");
            EPOCH.store(session, Ordering::SeqCst);
            drop(closed.take());
            wait_until("something is recycled", || {
                profiler_get_buffer_info().is_some_and(|info| info.recycled_bytes > SMALL_CAPACITY)
            });
            closed = GATE.write().ok();
            // Nor does the sampler write any more.
            profiler_pause();
            accounts.push(account());
            if session % 2 == 0 {
                profiler_stop();
            }
        }
        END.store(true, Ordering::Relaxed);
        EPOCH.store(SMALL_SESSIONS, Ordering::SeqCst);
        profiler_stop();
        drop(closed);
        let threads: Vec<WrittenByThread> = writers
            .into_iter()
            .flat_map(|writer| writer.join().expect("a writer"))
            .collect();
        for (session, account) in (0..).zip(&accounts) {
            let of_session = |thread: &WrittenByThread| -> Vec<u64> {
                thread
                    .iter()
                    .filter(|(of, _)| *of == session)
                    .map(|(_, number)| *number)
                    .collect()
            };
            let by_thread: Vec<_> = threads.iter().map(of_session).collect();
            let written: HashSet<u64> = by_thread.iter().flatten().copied().collect();
            assert!(
                account.found.is_subset(&written),
                "markers of another session are in {session}"
            );
            let missing = (written.len() - account.found.len()) as u64;
            assert!(
                account.recycled_chunks > 0 && missing > 0,
                "{missing} of session {session}"
            );
            assert!(
                missing <= account.lost_entries,
                "{missing} are missing, of {} that were lost",
                account.lost_entries
            );
            let stacks = written.iter().filter(|number| *number % 4 == 3).count() as u64;
            let put = account.put_entries + account.lost_marker_stacks;
            assert!(
                put >= written.len() as u64 + stacks,
                "{put} were put of {} and {stacks} stacks",
                written.len()
            );
            for of_thread in by_thread {
                // What was recycled is the oldest.
                let gone = of_thread
                    .iter()
                    .take_while(|number| !account.found.contains(number))
                    .count();
                let is_there = of_thread[gone..]
                    .iter()
                    .all(|number| account.found.contains(number));
                assert!(is_there, "a gap within {of_thread:?} in session {session}");
            }
        }
    });
}
