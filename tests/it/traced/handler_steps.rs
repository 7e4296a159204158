//! All instructions of the signal handler: ptrace steps through some runs, and each instruction
//! must lie in a function that the handler may call.
//!
//! Taking a free lock, allocating from a cache, creating a thread-local at its first use and
//! binding a symbol at its first call make no system call. But each runs a function of the C
//! library, the loader or the standard library that is not allowed here. The line tables show
//! inlined functions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

use super::tracer::code::{Code, Function};
use super::tracer::workload::{LIVES, be_profiled, be_signaled};
use super::tracer::{Go, StopReason, TIME_LIMIT, Traced, role};
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
    "pthread_sigmask",
    "sigaddset",
    "signal return",
    "syscall",
];
/// Functions of this crate that the handler may run although their names do not end in
/// `_in_handler`.
const OWN: &[&str] = &[
    "read_clock_ns",
    "monotonic_now",
    "now_in_any_state",
    "system_now_ns",
];
/// Functions that must not be inlined into those of the handler.
const NEVER: &[&str] = &[
    "std::",
    "alloc::",
    "core::fmt",
    "core::panicking",
    "::locks::",
    "::ps_lock::",
];
/// Stack that the handler may use, in bytes. Together with the kernel's signal frame, it must fit
/// on the alternate stack of 8 KiB that the standard library gives each thread.
const MAX_STACK_BYTES: u64 = 3 << 10;
/// Maximum distance, in bytes, between the stack pointer at the delivery of the signal and the one
/// after the handler has returned. The handler's own stack is farther away.
const MAX_STEP_BYTES: u64 = 256;
const RUNS_PER_LIFE: u32 = 6;
const MIN_INSTRUCTIONS: u64 = 3001;

/// Returns why the handler must not run the function, or `None` if it may.
fn objection(function: &Function) -> Option<String> {
    let (outer, inlined) = match function {
        Function::Kernel => return None,
        Function::Library(name) if LIBRARY.contains(&name.as_str()) => return None,
        Function::Library(name) => return Some(format!("{name}, of a library")),
        Function::Unknown(place) => return Some(format!("code at {place}")),
        Function::Own { outer, inlined } => (outer, inlined),
    };
    let last = outer.rsplit("::").next().unwrap_or(outer);
    let is_marked = last.ends_with("_in_handler") || OWN.contains(&last);
    if !(outer.starts_with("gekkota::") && is_marked || outer.starts_with("core::")) {
        return Some(outer.clone());
    }
    let mut names = inlined.iter().chain([outer]);
    let name = names.find(|name| NEVER.iter().any(|never| name.contains(never)))?;
    Some(format!("{name}, inlined into {outer}"))
}

#[derive(Debug, Default)]
struct Seen {
    runs: BTreeMap<String, u32>,
    instructions: u64,
    /// Maximum amount of stack that a run used.
    stack_bytes: u64,
    functions: BTreeSet<String>,
    forbidden: BTreeSet<String>,
}

impl Seen {
    fn runs_of(&self, name: &str) -> u32 {
        self.runs.get(name).copied().unwrap_or(0)
    }

    fn has_all_lives(&self) -> bool {
        LIVES.iter().all(|life| self.runs_of(life) >= RUNS_PER_LIFE)
    }

    fn has_capture(&self) -> bool {
        let mut names = self.functions.iter();
        names.any(|name| name.contains("capture_in_handler"))
    }
}

/// The run that is being stepped through.
struct HandlerRun {
    thread: i32,
    /// Stack pointer at the delivery of the signal. The handler has returned once it is reached
    /// again: the handler runs on the thread's alternate stack.
    sp: u64,
    /// Stack pointer at the handler's first instruction.
    first_sp: Option<u64>,
    last_pc: u64,
}

/// Steps through runs of the handler, one at a time, until `is_enough` returns true or
/// [`TIME_LIMIT`] has passed. Then waits for the child's end.
///
/// A thread that the signal reaches during the run of another one stays stopped until that run
/// ends. The handler waits for no other thread, so this cannot deadlock.
fn step_through(mut child: Traced, is_enough: impl Fn(&Seen) -> bool) -> Seen {
    let mut code = Code::of(child.process(), LIBRARY);
    let mut seen = Seen::default();
    let mut known = HashMap::new();
    let mut run: Option<HandlerRun> = None;
    let mut held = Vec::new();
    let end = Instant::now() + TIME_LIMIT;
    while let Some((thread, stop)) = child.next_stop() {
        match stop {
            StopReason::Signal {
                signal: libc::SIGURG,
                request: true,
            } => held.push(thread),
            StopReason::Stepped => {
                let point = child.stop_point(thread);
                let current = run
                    .as_mut()
                    .filter(|run| run.thread == thread)
                    .expect("the current run");
                let first_sp = *current.first_sp.get_or_insert(point.sp);
                if (current.sp..current.sp + MAX_STEP_BYTES).contains(&point.sp) {
                    *seen
                        .runs
                        .entry(child.name_of(thread).to_owned())
                        .or_default() += 1;
                    run = None;
                    child.go(thread, Go::On, 0);
                } else {
                    seen.stack_bytes = seen.stack_bytes.max(first_sp.saturating_sub(point.sp));
                    // An instruction that copies bytes stops after each byte.
                    if point.pc != current.last_pc {
                        current.last_pc = point.pc;
                        seen.instructions += 1;
                        known.entry(point.pc).or_insert_with(|| {
                            let function = code.function_at(point.pc);
                            seen.forbidden.extend(objection(&function));
                            seen.functions.insert(function.to_string());
                        });
                    }
                    child.go(thread, Go::OneStep, 0);
                }
            }
            StopReason::Signal { signal, .. } => {
                if run.as_ref().is_some_and(|run| run.thread == thread) {
                    seen.forbidden.insert(format!("signal {signal}"));
                    run = None;
                }
                child.go(thread, Go::On, signal);
            }
            StopReason::SystemCall(_) => child.go(thread, Go::On, 0),
        }
        if run.is_none() {
            let goes_on = !is_enough(&seen) && Instant::now() < end;
            let has_all_lives = seen.has_all_lives();
            let is_wanted =
                |name: &str| goes_on && (has_all_lives || seen.runs_of(name) < RUNS_PER_LIFE);
            for thread in held.drain(..) {
                if run.is_none() && is_wanted(child.name_of(thread)) {
                    run = Some(HandlerRun {
                        thread,
                        sp: child.stop_point(thread).sp,
                        first_sp: None,
                        last_pc: 0,
                    });
                    child.go(thread, Go::OneStep, libc::SIGURG);
                } else {
                    child.go(thread, Go::On, libc::SIGURG);
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
    *LOCK.lock().expect("not poisoned") += 1;
}

#[test]
fn handler_runs_only_allowed_functions() {
    isolated(|| {
        const TEST: &str = "traced::handler_steps::handler_runs_only_allowed_functions";
        match role().as_deref() {
            Some("profiled") => return be_profiled(20),
            Some("allocates") => return be_signaled(allocates, 2),
            Some("locks") => return be_signaled(locks, 2),
            Some(other) => panic!("no role {other}"),
            None => {}
        }

        // The test finds functions that are not allowed, although they make no system call.
        for (role, function) in [
            ("allocates", "malloc"),
            ("allocates", "free"),
            ("locks", "handler_steps::locks"),
        ] {
            let seen = step_through(Traced::start(TEST, role), |seen| {
                seen.runs.values().sum::<u32>() >= 2
            });
            assert!(
                seen.forbidden.iter().any(|found| found.contains(function)),
                "{role}: {seen:#?}"
            );
        }

        let seen = step_through(Traced::start(TEST, "profiled"), |seen| {
            let has_enough = seen.has_all_lives() && seen.instructions >= MIN_INSTRUCTIONS;
            has_enough && seen.has_capture()
        });
        println!("{seen:#?}");
        assert!(
            seen.forbidden.is_empty(),
            "the handler ran functions that are not allowed, or not named `*_in_handler`: {seen:#?}"
        );
        assert!(
            seen.has_all_lives() && seen.instructions >= MIN_INSTRUCTIONS,
            "the time limit has passed: {seen:#?}"
        );
        assert!(seen.has_capture(), "{seen:#?}");
        assert!(seen.stack_bytes <= MAX_STACK_BYTES, "{seen:#?}");
    });
}
