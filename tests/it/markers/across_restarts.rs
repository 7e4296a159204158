//! Sixteen writers record markers while their threads exit and are replaced, the profiler restarts
//! many times, and snapshots are taken. Each marker is in its own session, complete and once,
//! and in no other session. If the buffer is too small, the profile counts the lost markers, which
//! are the oldest of each thread.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use crate::common::{Read, isolated, wait_until};
use gekkota::callback::profiler_callback_after_sampling;
use gekkota::{
    MarkerOptions, MarkerStack, StartParams, ThreadGuard, add_marker, add_text_marker,
    add_untyped_marker, gecko_profiler_category, profiler_get_buffer_info, profiler_pause,
    profiler_start, profiler_stop,
};
use serde_json::Value;

const WRITERS: usize = 16;
const SESSIONS: u64 = 40;
/// Number of markers after which a writer's thread exits, and another continues.
const MARKERS_OF_A_THREAD: u64 = 700;

/// Minimum number of markers of each session that surely belong to it.
const CERTAIN_MARKERS: u64 = 21;
/// Number of markers that may be written before the sampler completes its next loop. The stacks of
/// twice as many fit into the memory for stacks that wait for the sampler.
const BURST: i64 = 8_000;
/// Number of bytes in the buffer beyond which the writers write only slowly, so that no chunk is
/// recycled.
const FULL_BYTES: u64 = 64 << 20;

const SMALL_SESSIONS: u64 = 10;
const SMALL_CAPACITY: u64 = 512 << 10;

gekkota::marker_type! {
    /// Holds the same number twice, so that a mixture of two markers would be detected.
    struct Numbered {
        number: u64 => "Number", Integer;
        text: String => "Text", String;
    }
}

/// Odd while a session records all markers. Even from before the session's last profile until after
/// the start of the next session.
static EPOCH: AtomicU64 = AtomicU64::new(0);
static END: AtomicBool = AtomicBool::new(false);
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);
/// Number of markers that surely belong to the session in which they were written.
static CERTAIN: AtomicU64 = AtomicU64::new(0);
static SNAPSHOTS: AtomicU64 = AtomicU64::new(0);
/// Number of markers that may still be written until the sampler completes a loop.
static ALLOWED: AtomicI64 = AtomicI64::new(BURST);

/// The number of a marker, and the epochs before and after it was written.
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
        while ALLOWED.fetch_sub(1, Ordering::Relaxed) <= 0 && !END.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_micros(200));
        }
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let before = EPOCH.load(Ordering::SeqCst);
        write(number);
        let after = EPOCH.load(Ordering::SeqCst);
        written.push((number, before, after));
        if is_certain(before, after) {
            CERTAIN.fetch_add(1, Ordering::Relaxed);
        }
        if number.is_multiple_of(8) {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    written
}

/// Returns whether a marker surely belongs to the session of this epoch.
fn is_certain(before: u64, after: u64) -> bool {
    before == after && before % 2 == 1
}

/// Lets the writers continue whenever the sampler has completed a loop, and while no session is
/// running. Without this, a sampler or a main thread that waits for a processor would make the
/// profiler lose markers or stacks.
fn limit_writers() {
    while !END.load(Ordering::Relaxed) {
        let (send, completed) = channel();
        if profiler_callback_after_sampling(move |state| _ = send.send(state)) {
            // Also returns when the session ends.
            let _ = completed.recv();
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_full = profiler_get_buffer_info()
            .is_some_and(|info| info.range_end - info.range_start > FULL_BYTES);
        // Even then, the test waits for some markers of each session.
        ALLOWED.store(if is_full { 1 } else { BURST }, Ordering::Relaxed);
    }
}

fn write_until_end() -> Vec<Written> {
    let mut written = Vec::new();
    while !END.load(Ordering::Relaxed) {
        written.extend(std::thread::spawn(write_some).join().expect("a writer"));
    }
    written
}

/// Returns the numbers of the profile's markers, and checks that each marker is complete.
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
fn marker_is_in_its_session_once_and_complete() {
    isolated(|| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|_| std::thread::spawn(write_until_end))
            .collect();
        let limiter = std::thread::spawn(limit_writers);
        let reader = std::thread::spawn(|| {
            while !END.load(Ordering::Relaxed) {
                let options = gekkota::profile::SnapshotOptions::default()
                    .symbolicate(gekkota::profile::Symbolicate::No);
                let mut text = Vec::new();
                if gekkota::profiler_stream_json(&mut text, &options).is_ok() {
                    let read = Read::from_text(&text);
                    numbers(&read);
                    assert_no_losses(&read);
                    SNAPSHOTS.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let mut found: Vec<HashSet<u64>> = Vec::new();
        for session in 0..SESSIONS {
            let params = StartParams::default()
                .filters(["writer"])
                .capacity_bytes(128 << 20);
            profiler_start(params).expect("start");
            EPOCH.store(2 * session + 1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(5));
            wait_until("the session has markers", || {
                CERTAIN.load(Ordering::Relaxed) >= (session + 1) * CERTAIN_MARKERS
            });
            if session + 1 == SESSIONS {
                wait_until("a snapshot was taken beside the writers", || {
                    SNAPSHOTS.load(Ordering::Relaxed) > 0
                });
            }
            EPOCH.store(2 * session + 2, Ordering::SeqCst);
            let read = Read::of_running();
            assert_no_losses(&read);
            let numbers = numbers(&read);
            let distinct: HashSet<u64> = numbers.iter().copied().collect();
            assert_eq!(distinct.len(), numbers.len(), "no duplicates");
            found.push(distinct);
            // The next start ends every second session.
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
        limiter.join().expect("the limiter");
        reader.join().expect("a reader");

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
            if is_certain(before, after) {
                assert_eq!(sessions, [before / 2], "marker {number}");
                certain += 1;
            } else if let Some(&session) = sessions.first() {
                // In an epoch of the session, or in the one before its first.
                assert!(
                    before <= 2 * session + 2 && after >= 2 * session,
                    "{number}: {before} to {after}, in {session}"
                );
                elsewhere += 1;
            }
        }
        assert!(
            sessions_of.is_empty(),
            "markers that no writer has written: {sessions_of:?}"
        );
        let snapshots = SNAPSHOTS.load(Ordering::Relaxed);
        println!(
            "{certain} markers within sessions, {elsewhere} at their ends, {snapshots} snapshots"
        );
        assert!(certain > 2_000 && snapshots > 0, "{certain}, {snapshots}");
    });
}

/// Locked from before the last profile of a session until after the start of the next one, so that
/// no writer writes in between.
static GATE: RwLock<()> = RwLock::new(());

/// The markers of one thread in the order of their writing: session and number.
type WrittenByThread = Vec<(u64, u64)>;

/// Writes markers like `write_some`, under the lock. The epoch is the session's number, and does
/// not change while a marker is written.
fn write_some_locked() -> WrittenByThread {
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

/// The markers and the losses in the profile of a session.
struct Account {
    found: HashSet<u64>,
    put_entries: u64,
    lost_entries: u64,
    lost_marker_stacks: u64,
    recycled_chunks: u64,
}

/// Takes the profile of the running session after all writers have stopped. Repeats until the
/// sampler has written the pending stacks.
fn account() -> Account {
    let mut account = None;
    wait_until("each byte is in the buffer or recycled", || {
        account = account_if_complete();
        account.is_some()
    });
    account.expect("the wait has ended")
}

/// Returns `None` if bytes were written while they were counted.
fn account_if_complete() -> Option<Account> {
    let read = Read::of_running();
    let log = &read.0["profilingLog"][std::process::id().to_string()]["buffer"];
    let losses = &read.0["meta"]["losses"];
    assert_eq!(
        (&losses["malformed_entries"], &losses["dropped_entries"]),
        (&Value::from(0), &Value::from(0))
    );
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value} in {log}"));
    let entries = log["entries"].as_object().expect("kinds of entries");
    let sum = |what: &str| {
        entries
            .values()
            .map(|kind| number(&kind[what]))
            .sum::<u64>()
    };
    let numbers = numbers(&read);
    let found: HashSet<u64> = numbers.iter().copied().collect();
    assert_eq!(found.len(), numbers.len(), "no duplicates");
    assert_eq!(
        number(&entries["marker"]["count"]),
        numbers.len() as u64,
        "the profile shows all markers in the buffer"
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
fn missing_markers_are_oldest_and_counted_as_recycled() {
    isolated(|| {
        END.store(false, Ordering::Relaxed);
        let write = || {
            let mut written = Vec::new();
            while !END.load(Ordering::Relaxed) {
                written.push(
                    std::thread::spawn(write_some_locked)
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
            wait_until("markers are recycled", || {
                profiler_get_buffer_info().is_some_and(|info| info.recycled_bytes > SMALL_CAPACITY)
            });
            closed = GATE.write().ok();
            // So that the sampler writes no more samples.
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
                "session {session} has markers of another session"
            );
            let missing = (written.len() - account.found.len()) as u64;
            assert!(
                account.recycled_chunks > 0 && missing > 0,
                "{missing} missing in session {session}"
            );
            assert!(
                missing <= account.lost_entries,
                "{missing} are missing, but only {} entries are counted as lost",
                account.lost_entries
            );
            let stacks = written.iter().filter(|number| *number % 4 == 3).count() as u64;
            let put = account.put_entries + account.lost_marker_stacks;
            assert!(
                put >= written.len() as u64 + stacks,
                "only {put} entries are counted of {} markers and {stacks} stacks",
                written.len()
            );
            for of_thread in by_thread {
                // The oldest markers are recycled first.
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
