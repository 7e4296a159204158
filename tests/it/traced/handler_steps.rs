//! The instructions of the signal handler, every one of them: ptrace steps through some runs, and each instruction must
//! lie in a function that may run there.
//!
//! A lock that is free, an allocation from a cache, a thread-local that is made at its first use, a symbol that is bound
//! when it is first called: none of these makes a system call, and each runs a function of the C library, of the loader or
//! of Rust's that is not allowed here. Inlined functions are seen through the line tables.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use super::tracer::code::{Code, Function};
use super::tracer::workload::{LIVES, be_profiled, be_signalled};
use super::tracer::{Go, Stop, Traced, role};
use crate::common::isolated;

/// The functions of the C library that the handler may run, all of them async-signal-safe.
const LIBRARY: &[&str] = &[
    "__errno_location",
    "clock_gettime",
    "getpid",
    "getrusage",
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "process_vm_readv",
    "the signal's way back",
];
/// Functions of this crate that the handler runs as they stand; the others end in `_in_handler`.
const OWN: &[&str] = &[
    "handle_signal",
    "read_clock_ns",
    "monotonic_now",
    "now_in_any_state",
    "system_now_ns",
];
/// What is inlined into them is of this crate or of `core`, and never of these.
const NEVER: &[&str] = &[
    "std::",
    "alloc::",
    "core::fmt",
    "core::panicking",
    "::locks::",
    "::ps_lock::",
];
const RUNS_OF_A_LIFE: u32 = 6;

/// Why an instruction here is against the rules.
fn objection(function: &Function) -> Option<String> {
    let (outer, inlined) = match function {
        Function::Kernel => return None,
        Function::Library(name) if LIBRARY.contains(&name.as_str()) => return None,
        Function::Library(name) => return Some(format!("{name}, of a library")),
        Function::Unknown(place) => return Some(format!("code at {place}")),
        Function::Own { outer, inlined } => (outer, inlined),
    };
    let last = outer.rsplit("::").next().unwrap_or(outer);
    let runs_there = last.ends_with("_in_handler") || OWN.contains(&last);
    if !(outer.starts_with("gekkota::") && runs_there || outer.starts_with("core::")) {
        return Some(outer.clone());
    }
    let mut names = inlined.iter().chain([outer]);
    let never = names.find(|name| NEVER.iter().any(|never| name.contains(never)))?;
    Some(format!("{never}, inlined into {outer}"))
}

#[derive(Debug, Default)]
struct Seen {
    runs: BTreeMap<String, u32>,
    instructions: u64,
    functions: BTreeSet<String>,
    dirty: BTreeSet<String>,
}

/// The run that is being stepped through.
struct Run {
    thread: i32,
    /// The stack pointer that the signal found; above it the handler has returned.
    sp: u64,
    last_pc: u64,
}

/// Steps through runs of the handler, one at a time, until it is enough or time is up; waits for the child's end.
///
/// Another thread that the signal reaches meanwhile is held where it is: the handler waits for nobody.
fn step_through(mut child: Traced, is_enough: impl Fn(&Seen) -> bool) -> Seen {
    let mut code = Code::of(child.process(), LIBRARY);
    let mut seen = Seen::default();
    let mut known = HashMap::new();
    let mut run: Option<Run> = None;
    let mut held = Vec::new();
    let end = Instant::now() + Duration::from_secs(30);
    while let Some((thread, stop)) = child.next_stop() {
        match stop {
            Stop::Signal {
                signal: libc::SIGPROF,
                request: true,
            } => held.push(thread),
            Stop::Stepped => {
                let place = child.place(thread);
                let current = run
                    .as_mut()
                    .filter(|run| run.thread == thread)
                    .expect("the run that is stepped");
                if place.sp >= current.sp {
                    *seen
                        .runs
                        .entry(child.name_of(thread).to_owned())
                        .or_default() += 1;
                    run = None;
                    child.go(thread, Go::On, 0);
                } else {
                    // A copying instruction stops after each byte.
                    if place.pc != current.last_pc {
                        current.last_pc = place.pc;
                        seen.instructions += 1;
                        known.entry(place.pc).or_insert_with(|| {
                            let function = code.function_at(place.pc);
                            seen.dirty.extend(objection(&function));
                            seen.functions.insert(function.to_string());
                        });
                    }
                    child.go(thread, Go::OneStep, 0);
                }
            }
            Stop::Signal { signal, .. } => {
                if run.as_ref().is_some_and(|run| run.thread == thread) {
                    seen.dirty.insert(format!("signal {signal}"));
                    run = None;
                }
                child.go(thread, Go::On, signal);
            }
            Stop::SystemCall(_) => child.go(thread, Go::On, 0),
        }
        if run.is_none() {
            let is_wanted = |name: &str| {
                seen.runs
                    .get(name)
                    .is_none_or(|runs| *runs < RUNS_OF_A_LIFE)
            };
            for thread in held.drain(..) {
                if run.is_none() && is_wanted(child.name_of(thread)) {
                    run = Some(Run {
                        thread,
                        sp: child.place(thread).sp,
                        last_pc: 0,
                    });
                    child.go(thread, Go::OneStep, libc::SIGPROF);
                } else {
                    child.go(thread, Go::On, libc::SIGPROF);
                }
            }
        }
        if is_enough(&seen) || Instant::now() > end {
            child.finish();
        }
    }
    seen
}

static LOCK: std::sync::Mutex<u32> = std::sync::Mutex::new(0);

extern "C" fn allocates(_: libc::c_int) {
    drop(std::hint::black_box(Box::new(7u64)));
}

extern "C" fn locks(_: libc::c_int) {
    *LOCK.lock().expect("nobody panics with it") += 1;
}

#[test]
fn the_handler_runs_no_instruction_of_a_function_that_is_not_allowed() {
    isolated(|| {
        const TEST: &str = "traced::handler_steps::the_handler_runs_no_instruction_of_a_function_that_is_not_allowed";
        match role().as_deref() {
            Some("profiled") => return be_profiled(20),
            Some("allocates") => return be_signalled(allocates, 2),
            Some("locks") => return be_signalled(locks, 2),
            Some(other) => panic!("no role {other}"),
            None => {}
        }

        // What is looked for is found, though it makes no system call.
        for (role, function) in [
            ("allocates", "malloc"),
            ("allocates", "free"),
            ("locks", "handler_steps::locks"),
        ] {
            let seen = step_through(Traced::start(TEST, role), |seen| {
                seen.runs.values().sum::<u32>() >= 2
            });
            assert!(
                seen.dirty.iter().any(|found| found.contains(function)),
                "{role}: {seen:#?}"
            );
        }

        let lived = |seen: &Seen| {
            LIVES.iter().all(|life| {
                seen.runs
                    .get(*life)
                    .is_some_and(|runs| *runs >= RUNS_OF_A_LIFE)
            })
        };
        let seen = step_through(Traced::start(TEST, "profiled"), lived);
        println!("{seen:#?}");
        assert!(
            seen.dirty.is_empty(),
            "the handler ran what it may not, or a helper without `_in_handler`: {seen:#?}"
        );
        assert!(
            lived(&seen) && seen.instructions > 3000,
            "too little was seen: {seen:#?}"
        );
        assert!(
            seen.functions
                .iter()
                .any(|name| name.contains("capture_in_handler")),
            "{seen:#?}"
        );
    });
}
