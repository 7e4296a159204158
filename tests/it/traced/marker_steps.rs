//! The instructions of adding markers, every one of them: ptrace steps through some, from one chunk into the next, and none
//! may lie in a function that locks, asks for memory or calls the kernel.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hint::black_box;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::tracer::code::{Code, Function};
use super::tracer::workload::{end_within_a_minute, wait_until_enough};
use super::tracer::{Go, Stop, Traced, role};
use crate::common::{Read, isolated};
use gekkota::{
    AutoProfilerTextMarker, Features, MarkerOptions, MarkerStack, ProfilerSession, SamplingEngine,
    StartParams, add_marker, add_text_marker, add_untyped_marker, gecko_profiler_category,
};

/// The functions of the C library that it may run: the time, and copying.
const LIBRARY: &[&str] = &["clock_gettime", "memcpy", "memmove", "memset"];
/// What may not run, nor be inlined into what runs.
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
/// So that a lane's first chunks, of 4 KiB, have room for a few.
const TEXT: &str = match str::from_utf8(&[b'x'; 700]) {
    Ok(text) => text,
    Err(_) => panic!(),
};

/// Why an instruction here is against the rules.
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
    has_begun: bool,
    has_ended: bool,
    instructions: u64,
    /// With the steps in each.
    functions: BTreeMap<String, u64>,
    /// Their names, and what was inlined into them.
    names: BTreeSet<String>,
    dirty: BTreeSet<String>,
}

impl Seen {
    fn add(&mut self, function: &Function) {
        let is = |name| matches!(function, Function::Own { outer, .. } if outer.ends_with(name));
        self.has_begun |= is("watch_begins");
        self.has_ended |= is("watch_ends");
        if self.has_begun && !self.has_ended {
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
            self.dirty.extend(objection(function));
        }
    }
}

/// Steps through what the child does from its signal on until it ends the watch.
fn step_through(mut child: Traced) -> Seen {
    let mut code = Code::of(child.process(), LIBRARY);
    let mut seen = Seen::default();
    let mut known = HashMap::new();
    let mut last_pc = 0;
    let end = Instant::now() + Duration::from_secs(40);
    while let Some((thread, stop)) = child.next_stop() {
        match stop {
            Stop::Signal {
                signal: libc::SIGUSR1,
                ..
            } => child.go(thread, Go::OneStep, 0),
            Stop::Signal { signal, .. } => {
                if seen.has_begun && !seen.has_ended {
                    seen.dirty.insert(format!("signal {signal}"));
                }
                child.go(thread, Go::On, signal);
            }
            Stop::Stepped => {
                let pc = child.place(thread).pc;
                // A copying instruction stops after each byte.
                if pc != last_pc {
                    last_pc = pc;
                    seen.add(known.entry(pc).or_insert_with(|| code.function_at(pc)));
                }
                let is_over = seen.has_ended || Instant::now() > end;
                child.go(thread, if is_over { Go::On } else { Go::OneStep }, 0);
                if is_over {
                    child.finish();
                }
            }
            Stop::SystemCall(_) => child.go(thread, Go::On, 0),
        }
    }
    seen
}

#[inline(never)]
fn watch_begins() {
    // Not the same code as below, which would make them one function.
    black_box("begins");
}

#[inline(never)]
fn watch_ends() {
    black_box("ends now");
}

/// Has every step of it watched.
fn be_watched(body: impl FnOnce()) {
    // SAFETY: touches no memory; the tracer takes the signal.
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

fn mark(rounds: usize) {
    for round in 0..rounds {
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
    end_within_a_minute();
    // Nobody is signalled, so that nothing but the markers is stepped through.
    let features = Features::default_set() | Features::NO_STACK_SAMPLING;
    // Nor does anybody try which engine is cheaper, which takes signals.
    let params = StartParams::default()
        .features(features)
        .engine(SamplingEngine::Signals);
    let session = ProfilerSession::start(params).expect("start");
    gekkota::register_thread("marks");
    mark(ROUNDS);
    std::thread::sleep(Duration::from_millis(200));
    be_watched(|| mark(ROUNDS));
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
                end_within_a_minute();
                be_watched(|| drop(black_box(Box::new(7u64))));
                return wait_until_enough();
            }
            Some("locks") => {
                end_within_a_minute();
                be_watched(|| *LOCK.lock().expect("nobody panics with it") += 1);
                return wait_until_enough();
            }
            Some(other) => panic!("no role {other}"),
            None => {}
        }

        // What is looked for is found, though it makes no system call.
        for (role, function) in [
            ("allocates", "malloc"),
            ("allocates", "free"),
            ("locks", "Mutex"),
        ] {
            let seen = step_through(Traced::start(TEST, role));
            assert!(
                seen.dirty.iter().any(|found| found.contains(function)),
                "{role}: {seen:#?}"
            );
        }

        let seen = step_through(Traced::start(TEST, "marks"));
        println!("{seen:#?}");
        assert!(
            seen.dirty.is_empty(),
            "adding a marker ran what it may not: {seen:#?}"
        );
        assert!(
            seen.has_ended && seen.instructions > 6 * ROUNDS as u64 * 50,
            "too little was seen: {seen:#?}"
        );
        assert!(
            seen.names.iter().any(|name| name.contains("next_chunk")),
            "it stayed in one chunk: {seen:#?}"
        );
    });
}
