//! Sleeping threads take few bytes in the buffer, and all their samples are in the profile.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::common::{Read, isolated, wait_until, work_for_cpu};
use gekkota::profile::{Format, SnapshotOptions, Symbolicate};
use gekkota::{
    ProfilerSession, ProfilerTime, StartParams, profiler_get_buffer_info, profiler_stream_json,
};
use serde_json::Value;

const THREADS: usize = 200;
/// Longest time until a measurement succeeds. The first ones may fail on a busy machine, where the
/// threads fall asleep late and the sampler misses ticks.
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// Ticks of one measurement. They take three seconds or more, and idle samples are overdue after
/// one.
const MEASURED_TICKS: u64 = 3000;
/// Maximum number of a thread's runs of rows in a second: a run is written when it is overdue.
const RUNS_PER_SECOND: f64 = 1.0;
/// Number of missed ticks that make the ticks uneven, or less, and maximum size of the entry for that,
/// in bytes. The threads have no entries for it.
const MISSED_TICKS_PER_GAP: f64 = 2.0;
const GAP_BYTES: f64 = 32.0;
/// Runs of a thread that may be shorter: the last one, and one more if the system wakes the thread.
const SHORT_RUNS: f64 = 2.0;
/// Maximum mean size of a run in the buffer, in bytes: twice what most runs take.
const RUN_BYTES: f64 = 50.0;
/// Maximum number of values of the process's counters, CPU time and memory, in a second, and maximum
/// size of one in the buffer, in bytes.
const COUNTS_PER_SECOND: f64 = 100.0;
const COUNT_BYTES: f64 = 32.0;

struct Sleeper {
    turn: Sender<()>,
    has_worked: Receiver<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Sleeper {
    /// Starts a thread. Its name differs from others not only by a number, so that it has a track of
    /// its own.
    fn start(index: usize) -> Self {
        let letter = |index: usize| char::from(b'a' + (index % 26) as u8);
        let name = format!("sleeper {}{}", letter(index / 26), letter(index));
        let (turn, turns) = channel();
        let (works, has_worked) = channel();
        let live = move || {
            gekkota::register_thread(&name);
            works.send(()).expect("the test waits");
            while turns.recv().is_ok() {
                work_for_cpu(Duration::from_millis(20));
                works.send(()).expect("the test waits");
            }
        };
        let thread = std::thread::spawn(live);
        has_worked.recv().expect("the thread is registered");
        Self {
            turn,
            has_worked,
            thread,
        }
    }

    fn work(&self) {
        self.turn.send(()).expect("the thread waits");
        self.has_worked.recv().expect("the thread has worked");
    }

    fn end(self) {
        drop(self.turn);
        self.thread.join().expect("thread");
    }
}

/// The kernel's state of each thread, `S` for a sleeping one. The calling thread runs.
fn states() -> Vec<u8> {
    let threads = std::fs::read_dir("/proc/self/task")
        .expect("threads")
        .flatten();
    let states =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
    let state = |stat: String| stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
    states.filter_map(state).collect()
}

/// A row in a thread's table of samples.
#[derive(Debug)]
struct Row {
    stack: u64,
    time_ms: f64,
    cpu_ns: u64,
}

/// The sleepers in a profile.
struct Slept {
    /// Their rows, by thread id.
    rows: BTreeMap<u64, Vec<Row>>,
    /// The first thread that has unregistered.
    ended: Option<u64>,
    ticks: u64,
    missed_ticks: u64,
}

fn row(row: &Value) -> Row {
    let unsigned = |column: usize| row[column].as_u64().expect("a number");
    Row {
        stack: unsigned(0),
        time_ms: row[1].as_f64().expect("a time"),
        cpu_ns: unsigned(3),
    }
}

impl Slept {
    fn of(read: &Read) -> Self {
        let log = &read.0["profilingLog"][std::process::id().to_string()]["buffer"];
        assert_eq!(log["malformed_entries"], 0);
        let mut slept = Self {
            rows: BTreeMap::new(),
            ended: None,
            ticks: read.count("ticks"),
            missed_ticks: read.count("missed_ticks"),
        };
        for thread in read.threads().iter().filter(|thread| {
            thread["name"]
                .as_str()
                .is_some_and(|name| name.starts_with("sleeper "))
        }) {
            let tid = thread["tid"].as_u64().expect("a number");
            let rows = thread["samples"]["data"]
                .as_array()
                .expect("rows")
                .iter()
                .map(row);
            slept.rows.insert(tid, rows.collect());
            slept.ended = slept
                .ended
                .or(thread["unregisterTime"].as_f64().map(|_| tid));
        }
        assert!(slept.rows.len() == THREADS);
        assert!(
            slept
                .rows
                .values()
                .all(|rows| rows.is_sorted_by_key(|row| row.time_ms))
        );
        slept
    }

    /// Returns the time from the first row to the last one, in seconds.
    fn recorded_seconds(&self) -> f64 {
        let times = || self.rows.values().flatten().map(|row| row.time_ms);
        let first = times().fold(f64::INFINITY, f64::min);
        (times().fold(first, f64::max) - first) / 1e3
    }
}

/// Options for a profile of the time since then, with all its rows.
fn since(time: ProfilerTime) -> SnapshotOptions {
    SnapshotOptions::default()
        .symbolicate(Symbolicate::No)
        .max_rows(u64::MAX)
        .since(time)
}

/// Reads the session's profile since then. For the profile, the sampler writes delayed idle
/// samples.
fn slept_since(time: ProfilerTime) -> Slept {
    let mut text = Vec::new();
    profiler_stream_json(&mut text, &since(time)).expect("active");
    Slept::of(&Read::from_text(&text))
}

/// Checks that the sleepers have the same number of rows, evenly spaced.
///
/// # Errors
/// What is different. On a busy machine, a measurement may cover few ticks.
fn check_rows(slept: &Slept, ticks: u64) -> Result<(), String> {
    let mut counts = BTreeMap::<usize, usize>::new();
    for (tid, rows) in &slept.rows {
        let is_idle = |row: &Row| row.cpu_ns == 0 && row.stack == rows[0].stack;
        if !rows.iter().all(is_idle) {
            return Err(format!("{tid} has run"));
        }
        *counts.entry(rows.len()).or_default() += 1;
        let gaps: Vec<f64> = rows
            .windows(2)
            .map(|two| two[1].time_ms - two[0].time_ms)
            .collect();
        // All gaps are even, except between two runs. Times have steps of a nanosecond.
        let even = gaps
            .windows(2)
            .filter(|two| (two[0] - two[1]).abs() < 1e-4)
            .count();
        if even <= gaps.len() / 2 {
            let all = gaps.len();
            return Err(format!(
                "{tid}: {even} of {all} gaps are like the one before"
            ));
        }
    }
    println!("{ticks} ticks, and the number of threads by number of rows: {counts:?}");
    // The system may have woken a thread. Runs that the beginning of the time cuts are spaced anew.
    let (&rows, _) = counts
        .iter()
        .max_by_key(|(_, threads)| **threads)
        .expect("threads");
    let near = counts
        .range(rows - rows / 10 - 1..=rows + rows / 10 + 1)
        .map(|(_, threads)| threads);
    if near.sum::<usize>() <= THREADS * 9 / 10 {
        return Err(format!("{counts:?}"));
    }
    // There are more ticks before the counts are read.
    if !(ticks / 2..ticks * 2).contains(&(rows as u64)) {
        return Err(format!("{rows} rows in {ticks} ticks"));
    }
    Ok(())
}

/// Number of ticks so far. Unlike a profile, this does not make the sampler write idle samples.
fn ticks() -> u64 {
    profiler_get_buffer_info().expect("active").overheads.count
}

/// Waits for `count` ticks.
fn wait_for_ticks(count: u64) {
    let end = ticks() + count;
    wait_until("the sampler has ticked", || ticks() >= end);
}

/// Measures the sleepers' bytes, and checks their rows.
///
/// # Errors
/// What is different.
fn measure() -> Result<(), String> {
    let before = slept_since(ProfilerTime::now());
    let put = || profiler_get_buffer_info().expect("active").range_end;
    let (time, put_before) = (ProfilerTime::now(), put());
    wait_for_ticks(MEASURED_TICKS);
    let slept = slept_since(time);
    let bytes = put() - put_before;
    let rows: usize = slept.rows.values().map(Vec::len).sum();
    let seconds = slept.recorded_seconds();
    let missed = slept.missed_ticks - before.missed_ticks;
    let gaps = missed as f64 / MISSED_TICKS_PER_GAP;
    let runs = THREADS as f64 * (seconds * RUNS_PER_SECOND + SHORT_RUNS);
    let counts = seconds * COUNTS_PER_SECOND + 2.0;
    let max_bytes = runs * RUN_BYTES + gaps * GAP_BYTES + counts * COUNT_BYTES;
    let found = format!("{bytes} bytes for {rows} rows in {seconds:.3} s, {max_bytes:.0} allowed");
    println!("{found}");
    if bytes as f64 > max_bytes {
        return Err(found);
    }
    // A thread's first sample has a stack of its own, and may have CPU time.
    let is_run = |rows: &Vec<Row>| rows.first().is_some_and(|row| row.cpu_ns == 0);
    if !slept.rows.values().all(is_run) {
        return Err("a thread has no idle samples".to_owned());
    }
    check_rows(&slept, slept.ticks - before.ticks)
}

#[test]
fn sleeping_threads_take_few_bytes_and_have_all_their_rows() {
    isolated(|| {
        let mut threads: Vec<_> = (0..THREADS).map(Sleeper::start).collect();
        wait_until("all threads sleep", || {
            states().iter().filter(|&&state| state != b'S').count() <= 1
        });
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        wait_for_ticks(100);
        let deadline = Instant::now() + LONGEST_WAIT;
        while let Err(difference) = measure() {
            println!("measured again: {difference}");
            assert!(Instant::now() < deadline, "{difference}");
        }

        // One thread runs again and one exits, while their idle samples are not written yet.
        let time = ProfilerTime::now();
        wait_for_ticks(300);
        threads[0].work();
        threads.swap_remove(1).end();
        let has_worked = |rows: &[Row]| rows.iter().map(|row| row.cpu_ns).sum::<u64>() > 10_000_000;
        wait_until("the work is in the profile", || {
            let slept = slept_since(time);
            slept.rows.values().any(|rows| has_worked(rows)) && slept.ended.is_some()
        });
        let profile = session.finish().expect("profile");
        threads.into_iter().for_each(Sleeper::end);
        let mut text = Vec::new();
        profile
            .write_with(Format::Gecko, &mut text, &since(time))
            .expect("a vector never fails");
        let slept = Slept::of(&Read::from_text(&text));

        let ended = slept.ended.expect("one thread has exited");
        let woken = slept
            .rows
            .keys()
            .find(|tid| has_worked(&slept.rows[tid]))
            .expect("one thread has worked for 20 ms");
        for tid in [ended, *woken] {
            let rows = slept.rows[&tid]
                .iter()
                .take_while(|row| row.cpu_ns == 0)
                .count();
            println!("{rows} rows before the idle time ended");
            assert!(rows > 0, "{tid}");
        }
    });
}
