//! Threads that sleep take hardly any room in the buffer, and all their samples are in the profile.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::common::{Read, isolated, work_for_cpu};
use gekkota::profile::{Format, SnapshotOptions, Symbolicate};
use gekkota::{
    ProfilerSession, ProfilerTime, StartParams, profiler_get_buffer_info, profiler_stream_json,
};
use serde_json::Value;

const THREADS: usize = 200;
/// On a machine that has hardly any time for it.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
const BYTES_OF_THREAD_A_SECOND: f64 = 64.0;
/// The process's CPU time, fifty times a second, and more for a session that records more.
const OWN_BYTES_A_SECOND: f64 = 2048.0;

struct Sleeper {
    turn: Sender<()>,
    has_worked: Receiver<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Sleeper {
    fn start() -> Self {
        let (turn, turns) = channel();
        let (works, has_worked) = channel();
        let live = move || {
            gekkota::register_thread("sleeper");
            works.send(()).expect("somebody waits");
            while turns.recv().is_ok() {
                work_for_cpu(Duration::from_millis(20));
                works.send(()).expect("somebody waits");
            }
        };
        let thread = std::thread::spawn(live);
        has_worked.recv().expect("it is registered");
        Self {
            turn,
            has_worked,
            thread,
        }
    }

    fn work(&self) {
        self.turn.send(()).expect("it waits");
        self.has_worked.recv().expect("it has worked");
    }

    fn end(self) {
        drop(self.turn);
        self.thread.join().expect("it sleeps and works");
    }
}

/// What the kernel says of each thread: whether it sleeps. The calling one runs.
fn states() -> Vec<u8> {
    let threads = std::fs::read_dir("/proc/self/task")
        .expect("threads")
        .flatten();
    let states =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
    let state = |stat: String| stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
    states.filter_map(state).collect()
}

/// A row of a thread's samples.
#[derive(Debug)]
struct Row {
    stack: u64,
    time_ms: f64,
    cpu_ns: u64,
}

/// What a profile has of the sleepers, by their ids. There are many rows.
struct Slept {
    rows: BTreeMap<u64, Vec<Row>>,
    ended: Option<u64>,
    ticks: u64,
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
        };
        for thread in read
            .threads()
            .iter()
            .filter(|thread| thread["name"] == "sleeper")
        {
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
}

/// How a profile of what was since then is written, with all its rows.
fn since(time: ProfilerTime) -> SnapshotOptions {
    SnapshotOptions::default()
        .symbolicate(Symbolicate::No)
        .max_rows(u64::MAX)
        .since(time)
}

/// What the session has since then. What is held back of rests is written for it.
fn slept_since(time: ProfilerTime) -> Slept {
    let mut text = Vec::new();
    profiler_stream_json(&mut text, &since(time)).expect("active");
    Slept::of(&Read::from_text(&text))
}

/// Of each sleeper there are the same ticks, evenly spaced.
fn check_rows(slept: &Slept, ticks: u64) {
    let mut counts = BTreeMap::<usize, usize>::new();
    for (tid, rows) in &slept.rows {
        assert!(
            rows.iter()
                .all(|row| row.cpu_ns == 0 && row.stack == rows[0].stack),
            "{tid}"
        );
        *counts.entry(rows.len()).or_default() += 1;
        let gaps: Vec<f64> = rows
            .windows(2)
            .map(|two| two[1].time_ms - two[0].time_ms)
            .collect();
        // All but where a run ends and the next begins. Times have steps of a nanosecond.
        let even = gaps
            .windows(2)
            .filter(|two| (two[0] - two[1]).abs() < 1e-4)
            .count();
        assert!(
            even > gaps.len() / 2,
            "{tid}: {even} of {} gaps are like the one before",
            gaps.len()
        );
    }
    println!("{ticks} ticks, and so many threads with so many rows: {counts:?}");
    // One or the other may have been woken by the system. Runs that are cut where the time begins are spaced anew.
    let (&rows, _) = counts
        .iter()
        .max_by_key(|(_, threads)| **threads)
        .expect("threads");
    let near = counts
        .range(rows - rows / 10 - 1..=rows + rows / 10 + 1)
        .map(|(_, threads)| threads);
    assert!(near.sum::<usize>() > THREADS * 9 / 10, "{counts:?}");
    // On a busy machine there are more ticks before the counts are read.
    assert!(
        (ticks / 2..ticks * 2).contains(&(rows as u64)),
        "{rows} rows in {ticks} ticks"
    );
}

#[test]
fn two_hundred_sleepers_take_a_few_bytes_a_second_and_have_all_their_rows() {
    isolated(|| {
        let mut threads: Vec<_> = (0..THREADS).map(|_| Sleeper::start()).collect();
        let deadline = Instant::now() + LONGEST_WAIT;
        while states().iter().filter(|&&state| state != b'S').count() > 1 {
            assert!(Instant::now() < deadline, "all sleep");
            std::thread::sleep(Duration::from_millis(20));
        }
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        std::thread::sleep(Duration::from_millis(500));
        let deadline = Instant::now() + LONGEST_WAIT;
        loop {
            let ticks_before = slept_since(ProfilerTime::now()).ticks;
            let put = || profiler_get_buffer_info().expect("active").range_end;
            let (begin, time, put_before) = (Instant::now(), ProfilerTime::now(), put());
            std::thread::sleep(Duration::from_secs(3));
            let (bytes, seconds) = ((put() - put_before) as f64, begin.elapsed().as_secs_f64());
            let slept = slept_since(time);
            let of_thread = (bytes / seconds - OWN_BYTES_A_SECOND) / THREADS as f64;
            println!("{bytes} bytes in {seconds:.2} s, or {of_thread:.1} a thread and second");
            // What came with a thread's first stack is over.
            let rest = |rows: &Vec<Row>| rows.first().is_some_and(|row| row.cpu_ns == 0);
            if of_thread < BYTES_OF_THREAD_A_SECOND && slept.rows.values().all(rest) {
                check_rows(&slept, slept.ticks - ticks_before);
                break;
            }
            assert!(
                Instant::now() < deadline,
                "{of_thread} bytes a thread and second"
            );
        }

        // One runs again and one ends, after rests that are not written yet.
        let time = ProfilerTime::now();
        std::thread::sleep(Duration::from_millis(900));
        threads[0].work();
        threads.swap_remove(1).end();
        let profile = session.finish().expect("profile");
        threads.into_iter().for_each(Sleeper::end);
        let mut text = Vec::new();
        profile
            .write_with(Format::Gecko, &mut text, &since(time))
            .expect("a vector never fails");
        let slept = Slept::of(&Read::from_text(&text));

        let ended = slept.ended.expect("one ended");
        let has_worked = |rows: &[Row]| rows.iter().map(|row| row.cpu_ns).sum::<u64>() > 10_000_000;
        let woken = slept
            .rows
            .keys()
            .find(|tid| has_worked(&slept.rows[tid]))
            .expect("one worked for 20 ms");
        for tid in [ended, *woken] {
            let rows = slept.rows[&tid]
                .iter()
                .take_while(|row| row.cpu_ns == 0)
                .count();
            println!("{rows} rows before its rest ended");
            assert!(rows > 0, "{tid}");
        }
    });
}
