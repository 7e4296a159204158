//! A thousand threads add markers at once, in little memory. Other threads add markers without a
//! registration, in a signal handler, and while they exit.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use crate::common::left_behind::{Holdings, status_kib};
use crate::common::{LONGEST_WAIT, Read, controlled, isolated, registered_threads_only};
use gekkota::{MarkerOptions, StartParams, gecko_profiler_category, profiler_start, profiler_stop};
use serde_json::Value;

const THREADS: usize = 1000;
const LATER_THREADS: usize = 100;
const MARKERS: usize = 12;
const CAPACITY: u64 = 128 << 20;
const SMALL_CHUNK_BYTES: u64 = 4 << 10;
/// Size of the sampler's chunks, the current one and the next.
const SAMPLERS_BYTES: u64 = 2 << 20;

fn mark(text: &str) {
    gekkota::add_text_marker(
        "M",
        gecko_profiler_category!(Other),
        MarkerOptions::default(),
        text,
    );
}

fn buffer(read: &Read) -> &Value {
    &read.0["profilingLog"][std::process::id().to_string()]["buffer"]
}

fn number(read: &Read, name: &str) -> u64 {
    buffer(read)[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name} in {}", buffer(read)))
}

/// Returns the texts of each thread's markers, by the thread's name.
fn texts(read: &Read) -> BTreeMap<String, Vec<String>> {
    assert_eq!(number(read, "malformed_entries"), 0);
    let mut texts = BTreeMap::new();
    for thread in read.threads() {
        let text = |row: &Value| {
            let index = row[5]["name"].as_u64().expect("a text") as usize;
            thread["stringTable"][index]
                .as_str()
                .expect("a string")
                .to_owned()
        };
        let rows = thread["markers"]["data"]
            .as_array()
            .expect("markers")
            .iter();
        let name = thread["name"].as_str().expect("a name").to_owned();
        assert!(
            texts.insert(name, rows.map(text).collect()).is_none(),
            "names are distinct"
        );
    }
    texts
}

/// Records a marker when it is dropped.
struct MarksAtEnd(&'static str);

impl Drop for MarksAtEnd {
    fn drop(&mut self) {
        mark(self.0);
    }
}

thread_local! {
    /// The destructor runs while the thread is still registered.
    static BEFORE_END: RefCell<Option<MarksAtEnd>> = const { RefCell::new(None) };
    /// The destructor runs after the thread has unregistered.
    static AFTER_END: RefCell<Option<MarksAtEnd>> = const { RefCell::new(None) };
}

fn write(number: usize) {
    AFTER_END.set(Some(MarksAtEnd("after the end")));
    gekkota::register_thread(&format!("writer {number}"));
    BEFORE_END.set(Some(MarksAtEnd("the end")));
    for marker in 0..MARKERS {
        mark(&format!("{number} {marker}"));
        std::thread::yield_now();
    }
}

fn expected(number: usize, has_ended: bool) -> Vec<String> {
    let end = has_ended.then(|| "the end".to_owned());
    (0..MARKERS)
        .map(|marker| format!("{number} {marker}"))
        .chain(end)
        .collect()
}

fn spawn(body: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::Builder::new()
        .stack_size(256 << 10)
        .spawn(body)
        .expect("a thread")
}

/// Runs a thousand writers at once, then others one after the other.
fn run_writers() {
    profiler_start(StartParams::default().capacity_bytes(CAPACITY)).expect("start");
    static ALL_HAVE_MARKED: Barrier = Barrier::new(THREADS + 1);
    static ALL_MAY_EXIT: Barrier = Barrier::new(THREADS + 1);
    let body = |number| {
        move || {
            write(number);
            ALL_HAVE_MARKED.wait();
            ALL_MAY_EXIT.wait();
        }
    };
    let threads: Vec<_> = (0..THREADS).map(|number| spawn(body(number))).collect();
    ALL_HAVE_MARKED.wait();
    let read = Read::of_running();
    let (lanes, unreleased) = (
        number(&read, "lanes"),
        number(&read, "unreleased_chunk_bytes"),
    );
    println!("{lanes} lanes, {unreleased} bytes");
    assert!(
        (THREADS..THREADS + 10).contains(&(lanes as usize)),
        "{lanes}"
    );
    assert!(
        unreleased <= 2 * SMALL_CHUNK_BYTES * lanes + SAMPLERS_BYTES && unreleased <= CAPACITY / 2
    );
    let texts_now = texts(&read);
    (0..THREADS).for_each(|number| {
        assert_eq!(
            texts_now[&format!("writer {number}")],
            expected(number, false)
        );
    });
    ALL_MAY_EXIT.wait();
    threads
        .into_iter()
        .for_each(|thread| thread.join().expect("a writer"));

    // Later threads reuse the lanes and chunks of exited threads.
    for number in THREADS..THREADS + LATER_THREADS {
        spawn(move || write(number)).join().expect("a writer");
    }
    let read = Read::of_running();
    let (lanes, after) = (
        number(&read, "lanes"),
        number(&read, "unreleased_chunk_bytes"),
    );
    println!("{lanes} lanes, {after} bytes after their exits");
    assert!(
        lanes < 10 && after <= unreleased,
        "{lanes} lanes, {after} bytes"
    );
    let texts = texts(&read);
    (0..THREADS + LATER_THREADS).for_each(|number| {
        assert_eq!(texts[&format!("writer {number}")], expected(number, true));
    });
    assert_eq!(
        (
            number(&read, "recycled_chunks"),
            number(&read, "dropped_entries")
        ),
        (0, 0)
    );
}

/// Checks that the end of a session frees its chunks.
fn check_memory_is_freed() {
    let resident_kib = || {
        let _trimmed = Holdings::now();
        status_kib("VmRSS:")
    };
    let chunks_kib = (number(&Read::of_running(), "unreleased_chunk_bytes") >> 10) as usize;
    let before = resident_kib();
    profiler_stop();
    let after = resident_kib();
    println!("{before} KiB, of which {chunks_kib} are chunks, then {after} KiB");
    assert!(
        after + chunks_kib / 3 < before,
        "{before} KiB, of which {chunks_kib} are chunks, then {after} KiB"
    );
}

#[test]
fn marker_of_unregistered_thread_is_not_recorded_if_those_are_left_out() {
    isolated(|| {
        profiler_start(registered_threads_only()).expect("start");
        spawn(|| (0..1000).for_each(|_| mark("unregistered")))
            .join()
            .expect("thread");
        let read = Read::of_running();
        assert!(
            texts(&read).values().all(Vec::is_empty),
            "the thread is not registered"
        );
        assert_eq!(
            (
                buffer(&read)["entries"]["marker"]["count"].as_u64(),
                number(&read, "dropped_entries")
            ),
            (Some(0), 0)
        );
        profiler_stop();
    });
}

/// Number of signals that interrupt the thread, one after the other.
const SIGNALS: usize = 1000;
/// Maximum number of markers that the thread adds between two signals.
const MARKERS_PER_SIGNAL: usize = 100;
static HANDLED: AtomicUsize = AtomicUsize::new(0);

/// Formats a number without the heap.
fn with_number(number: usize, body: impl FnOnce(&str)) {
    let mut digits = [0; 20];
    let mut rest = &mut digits[..];
    write!(rest, "{number}").expect("20 digits suffice");
    let length = 20 - rest.len();
    body(std::str::from_utf8(&digits[..length]).expect("digits"));
}

extern "C" fn mark_in_handler(_: i32) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
    mark("handler");
}

/// A signal handler adds markers while it interrupts the thread's own markers and requests for
/// chunks. All markers of the thread are recorded. The handler's markers are recorded, or counted
/// as dropped.
#[test]
fn markers_of_signal_handler_are_recorded_or_counted() {
    isolated(|| {
        static END: AtomicBool = AtomicBool::new(false);
        controlled::set_handler(libc::SIGUSR2, mark_in_handler as *const () as usize);
        profiler_start(StartParams::default()).expect("start");
        let interrupted = spawn_interrupted(&END);
        let target = interrupted.1;
        let end = Instant::now() + LONGEST_WAIT;
        for signal in 1..=SIGNALS {
            // SAFETY: the thread runs until `END` is set.
            assert_eq!(unsafe { libc::pthread_kill(target, libc::SIGUSR2) }, 0);
            while HANDLED.load(Ordering::Relaxed) < signal {
                assert!(Instant::now() < end, "{signal} of {SIGNALS} signals");
                std::thread::yield_now();
            }
            // Each signal arrives at another instruction.
            (0..signal % 97 * 10).for_each(|_| std::hint::spin_loop());
        }
        END.store(true, Ordering::Relaxed);
        let marked = interrupted.0.join().expect("the thread ends");
        let read = Read::of_running();
        let texts = texts(&read);
        let (of_handler, own): (Vec<&String>, Vec<_>) = texts["interrupted"]
            .iter()
            .partition(|text| *text == "handler");
        let dropped = number(&read, "entries_in_own_work") as usize;
        println!("{marked} markers, {SIGNALS} signals, {dropped} dropped");
        assert!(
            own.iter()
                .enumerate()
                .all(|(number, text)| text.parse() == Ok(number))
        );
        assert_eq!((own.len(), of_handler.len() + dropped), (marked, SIGNALS));
        profiler_stop();
    });
}

type Interrupted = (std::thread::JoinHandle<usize>, libc::pthread_t);

fn spawn_interrupted(end: &'static AtomicBool) -> Interrupted {
    let (send, receive) = std::sync::mpsc::channel();
    let body = move || {
        gekkota::register_thread("interrupted");
        // SAFETY: the call accesses no memory.
        send.send(unsafe { libc::pthread_self() })
            .expect("the test waits");
        drop(send);
        let mut number = 0;
        // Only marker calls: the handler may not interrupt an allocation, because it may allocate.
        while !end.load(Ordering::Relaxed) {
            if number < MARKERS_PER_SIGNAL * (HANDLED.load(Ordering::Relaxed) + 1) {
                with_number(number, mark);
                number += 1;
            }
        }
        number
    };
    let thread = std::thread::spawn(body);
    (thread, receive.recv().expect("the thread registers"))
}

#[test]
fn thousand_writers_lose_no_marker_and_memory_is_freed() {
    isolated(|| {
        Holdings::prepare();
        run_writers();
        check_memory_is_freed();
    });
}
