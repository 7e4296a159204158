//! All instructions of adding markers: ptrace steps through some markers, from one chunk into the
//! next. None may lie in a function that locks, allocates or makes a system call.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hint::black_box;
use std::sync::Mutex;
use std::time::Instant;

use super::tracer::code::{Code, Function};
use super::tracer::workload::{limit_lifetime, wait_until_enough};
use super::tracer::{Go, StopReason, TIME_LIMIT, Traced, role};
use crate::common::{Read, isolated, one_loop};
use gekkota::{
    AutoProfilerTextMarker, Features, MarkerOptions, MarkerStack, ProfilerSession, StartParams,
    add_marker, add_text_marker, add_untyped_marker, gecko_profiler_category,
};

/// Functions of the C library that may run: to read the clock, and to copy.
const LIBRARY: &[&str] = &["clock_gettime", "memcpy", "memmove", "memset"];
/// Functions that must not run, inlined or not.
const NEVER: &[&str] = &[
    "Mutex",
    "RwLock",
    "Condvar",
    "std::io::",
    "alloc::alloc::",
    "alloc::raw_vec::",
    "core::fmt",
    "core::panicking",
    "::ps_lock::",
];
const ROUNDS: usize = 12;
/// Large, so that a lane's first chunks, of 4 KiB, hold only a few markers.
const TEXT: &str = match str::from_utf8(&[b'x'; 700]) {
    Ok(text) => text,
    Err(_) => panic!(),
};

/// Returns why adding a marker must not run the function, or `None` if it may.
fn objection(function: &Function) -> Option<String> {
    match function {
        Function::Kernel => None,
        Function::Library(name) if LIBRARY.contains(&name.as_str()) => None,
        Function::Library(name) => Some(format!("{name}, of a library")),
        Function::Unknown(place) => Some(format!("code at {place}")),
        Function::Own { outer, inlined } => {
            let mut names = inlined.iter().chain([outer]);
            names
                .find(|name| NEVER.iter().any(|never| name.contains(never)))
                .cloned()
        }
    }
}

#[derive(Debug, Default)]
struct Seen {
    is_watching: bool,
    /// Number of watches that have ended.
    watches: usize,
    instructions: u64,
    /// Number of instructions in each function.
    functions: BTreeMap<String, u64>,
    /// Names of the functions and of the functions inlined into them.
    names: BTreeSet<String>,
    forbidden: BTreeSet<String>,
}

impl Seen {
    fn add(&mut self, function: &Function) {
        let is = |name| matches!(function, Function::Own { outer, .. } if outer.ends_with(name));
        self.is_watching |= is("watch_begins");
        if self.is_watching && is("watch_ends") {
            self.is_watching = false;
            self.watches += 1;
        }
        if self.is_watching {
            self.instructions += 1;
            *self.functions.entry(function.to_string()).or_default() += 1;
            if let Function::Own { outer, inlined } = function {
                let names = inlined
                    .iter()
                    .chain([outer])
                    .filter(|name| !self.names.contains(*name));
                let new: Vec<String> = names.cloned().collect();
                self.names.extend(new);
            }
            self.forbidden.extend(objection(function));
        }
    }
}

/// Steps through the child's watches, each from its signal to its end, until `watches` have ended
/// or [`TIME_LIMIT`] has passed. Then waits for the child's end.
fn step_through(mut child: Traced, watches: usize) -> Seen {
    let mut code = Code::of(child.process(), LIBRARY);
    let mut seen = Seen::default();
    let mut known = HashMap::new();
    let mut last_pc = 0;
    let end = Instant::now() + TIME_LIMIT;
    while let Some((thread, stop)) = child.next_stop() {
        match stop {
            StopReason::Signal {
                signal: libc::SIGUSR1,
                ..
            } => child.go(thread, Go::OneStep, 0),
            StopReason::Signal { signal, .. } => {
                if seen.is_watching {
                    seen.forbidden.insert(format!("signal {signal}"));
                }
                child.go(thread, Go::On, signal);
            }
            StopReason::Stepped => {
                let pc = child.stop_point(thread).pc;
                let ended = seen.watches;
                // An instruction that copies bytes stops after each byte.
                if pc != last_pc {
                    last_pc = pc;
                    seen.add(known.entry(pc).or_insert_with(|| code.function_at(pc)));
                }
                let has_timed_out = Instant::now() > end;
                let stays = seen.watches == ended && !has_timed_out;
                child.go(thread, if stays { Go::OneStep } else { Go::On }, 0);
                if seen.watches == watches || has_timed_out {
                    child.finish();
                }
            }
            StopReason::SystemCall(_) => child.go(thread, Go::On, 0),
        }
    }
    seen
}

#[inline(never)]
fn watch_begins() {
    // Differs from `watch_ends`, because the linker may merge equal functions.
    black_box("begins");
}

#[inline(never)]
fn watch_ends() {
    black_box("ends now");
}

/// Runs `body` while the tracer steps through it.
fn be_watched(body: impl FnOnce()) {
    // SAFETY: `raise` accesses no memory, and the tracer discards the signal.
    assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
    watch_begins();
    body();
    watch_ends();
}

gekkota::marker_type! {
    struct Typed {
        number: u64 => "Number", Integer;
        text: gekkota::marker::built_in::CowString => "Text", String;
        flow: gekkota::FlowId => "Flow", Flow;
    }
}

fn add_markers(rounds: std::ops::Range<usize>) {
    for round in rounds {
        let category = gecko_profiler_category!(Other);
        add_untyped_marker("untyped", category, MarkerOptions::default());
        add_text_marker("text", category, MarkerOptions::default(), TEXT);
        let typed = Typed {
            number: u64::MAX,
            text: TEXT.into(),
            flow: gekkota::FlowId::from(round as u64),
        };
        add_marker("typed", category, MarkerOptions::default(), typed);
        add_text_marker("stack", category, MarkerStack::Full.into(), "short");
        add_untyped_marker("labels", category, MarkerStack::NonNative.into());
        drop(AutoProfilerTextMarker::new(
            "interval",
            category,
            MarkerOptions::default(),
            "short",
        ));
    }
}

fn be_recorded() {
    limit_lifetime();
    // Without sampling no signals arrive, so the tracer steps only through the markers.
    let features = Features::default_set() | Features::NO_STACK_SAMPLING;
    let params = StartParams::default().features(features);
    let session = ProfilerSession::start(params).expect("start");
    gekkota::register_thread("marks");
    add_markers(0..ROUNDS);
    for round in 0..ROUNDS {
        // In each loop the sampler supplies the lane's next chunk, and a round fills at most one.
        one_loop();
        be_watched(|| add_markers(round..round + 1));
    }
    wait_until_enough();
    let read = Read::from_profile(&session.finish().expect("profile"));
    let markers =
        |thread: &serde_json::Value| thread["markers"]["data"].as_array().map_or(0, Vec::len);
    assert_eq!(
        read.threads().iter().map(markers).sum::<usize>(),
        2 * 6 * ROUNDS
    );
}

static LOCK: Mutex<u32> = Mutex::new(0);

#[test]
fn adding_a_marker_runs_no_function_that_locks_or_allocates() {
    isolated(|| {
        const TEST: &str =
            "traced::marker_steps::adding_a_marker_runs_no_function_that_locks_or_allocates";
        match role().as_deref() {
            Some("marks") => return be_recorded(),
            Some("allocates") => {
                limit_lifetime();
                be_watched(|| drop(black_box(Box::new(7u64))));
                return wait_until_enough();
            }
            Some("locks") => {
                limit_lifetime();
                be_watched(|| *LOCK.lock().expect("not poisoned") += 1);
                return wait_until_enough();
            }
            Some(other) => panic!("no role {other}"),
            None => {}
        }

        // The test finds functions that are not allowed, although they make no system call.
        for (role, function) in [
            ("allocates", "malloc"),
            ("allocates", "free"),
            ("locks", "Mutex"),
        ] {
            let seen = step_through(Traced::start(TEST, role), 1);
            assert!(
                seen.forbidden.iter().any(|found| found.contains(function)),
                "{role}: {seen:#?}"
            );
        }

        let seen = step_through(Traced::start(TEST, "marks"), ROUNDS);
        println!("{seen:#?}");
        assert!(
            seen.forbidden.is_empty(),
            "adding a marker ran functions that are not allowed: {seen:#?}"
        );
        assert!(
            seen.watches == ROUNDS && seen.instructions > 6 * ROUNDS as u64 * 50,
            "too few instructions, or the time limit has passed: {seen:#?}"
        );
        assert!(
            seen.names.iter().any(|name| name.contains("next_chunk")),
            "all markers lie in one chunk: {seen:#?}"
        );
    });
}
