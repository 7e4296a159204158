//! The system calls of the signal handler, every one of them, as the kernel sees them: ptrace follows each thread from
//! the delivery of the profiler's signal until the handler has returned.
//!
//! A lock that waits, memory that is asked for, a fault that is handled: each is a system call or a signal here, and none
//! that is not in [`ALLOWED`] passes. What makes no system call, a lock that is free, `handler_steps.rs` looks for.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use super::tracer::workload::{LIVES, be_profiled, be_signalled};
use super::tracer::{Go, Stop, Traced, role};
use crate::common::isolated;

/// What the handler asks of the kernel: the time, where the vDSO does not tell it; memory that may not be there; and its
/// way back.
const ALLOWED: [libc::c_long; 3] = [
    libc::SYS_clock_gettime,
    libc::SYS_process_vm_readv,
    libc::SYS_rt_sigreturn,
];

macro_rules! names {
    ($($name:ident),*) => { [$((libc::$name, stringify!($name))),*] };
}

fn name_of(call: i64) -> String {
    let names = names!(
        SYS_read,
        SYS_write,
        SYS_close,
        SYS_mmap,
        SYS_mprotect,
        SYS_munmap,
        SYS_brk,
        SYS_madvise,
        SYS_mremap,
        SYS_futex,
        SYS_rt_sigaction,
        SYS_rt_sigprocmask,
        SYS_rt_sigreturn,
        SYS_sched_yield,
        SYS_nanosleep,
        SYS_clock_nanosleep,
        SYS_getpid,
        SYS_gettid,
        SYS_getuid,
        SYS_tgkill,
        SYS_openat,
        SYS_clock_gettime,
        SYS_getrusage,
        SYS_process_vm_readv,
        SYS_getrandom,
        SYS_exit_group
    );
    let name = names
        .iter()
        .find(|(number, _)| *number == call)
        .map(|(_, name)| (*name)["SYS_".len()..].to_owned());
    name.unwrap_or_else(|| format!("system call {call}"))
}

/// What was seen of the handlers' runs.
#[derive(Debug, Default)]
struct Seen {
    /// Whole runs, by the thread's name.
    runs: BTreeMap<String, u32>,
    calls: BTreeMap<String, u32>,
    /// What is not allowed, with an example.
    dirty: BTreeMap<String, String>,
}

impl Seen {
    fn total(&self) -> u32 {
        self.runs.values().sum()
    }
}

/// Follows every run of the handler, until it is enough or time is up; then waits for the child's end.
fn follow(mut child: Traced, is_enough: impl Fn(&Seen) -> bool) -> Seen {
    let mut seen = Seen::default();
    let mut inside = HashSet::new();
    let end = Instant::now() + Duration::from_secs(20);
    while let Some((thread, stop)) = child.next_stop() {
        match stop {
            Stop::Signal {
                signal: libc::SIGPROF,
                request: true,
            } if inside.insert(thread) => {
                child.go(thread, Go::ToSystemCall, libc::SIGPROF);
            }
            Stop::Signal { signal, .. } => {
                if inside.remove(&thread) {
                    seen.dirty
                        .insert(format!("signal {signal}"), child.name_of(thread).to_owned());
                }
                child.go(thread, Go::On, signal);
            }
            Stop::SystemCall(place) => {
                if let Some((call, arguments)) = place.entered {
                    *seen.calls.entry(name_of(call)).or_default() += 1;
                    if !ALLOWED.contains(&call) {
                        let example = format!("({arguments:x?}) at {:#x}", place.pc);
                        seen.dirty.entry(name_of(call)).or_insert(example);
                    }
                }
                if place
                    .entered
                    .is_some_and(|(call, _)| call == libc::SYS_rt_sigreturn)
                {
                    inside.remove(&thread);
                    *seen
                        .runs
                        .entry(child.name_of(thread).to_owned())
                        .or_default() += 1;
                    child.go(thread, Go::On, 0);
                } else {
                    child.go(thread, Go::ToSystemCall, 0);
                }
            }
            Stop::Stepped => child.go(thread, Go::On, 0),
        }
        if is_enough(&seen) || Instant::now() > end {
            child.finish();
        }
    }
    seen
}

extern "C" fn writes(_: libc::c_int) {
    // SAFETY: nothing is read from no bytes.
    unsafe { libc::write(1, std::ptr::null(), 0) };
}

extern "C" fn allocates(_: libc::c_int) {
    drop(std::hint::black_box(vec![1u8; 4 << 20]));
}

#[test]
fn the_handler_makes_no_system_call_but_the_allowed() {
    isolated(|| {
        const TEST: &str =
            "traced::handler_calls::the_handler_makes_no_system_call_but_the_allowed";
        match role().as_deref() {
            Some("profiled") => return be_profiled(2000),
            Some("writes") => return be_signalled(writes, 20),
            Some("allocates") => return be_signalled(allocates, 20),
            Some(other) => panic!("no role {other}"),
            None => {}
        }

        // What is looked for is found.
        for (role, call) in [
            ("writes", "write"),
            ("allocates", "mmap"),
            ("allocates", "munmap"),
        ] {
            let seen = follow(Traced::start(TEST, role), |seen| seen.total() >= 20);
            assert!(seen.dirty.contains_key(call), "{role}: {seen:?}");
        }

        let lived = |seen: &Seen| {
            LIVES
                .iter()
                .all(|life| seen.runs.get(*life).is_some_and(|runs| *runs >= 100))
        };
        let seen = follow(Traced::start(TEST, "profiled"), |seen| {
            seen.total() >= 3000 && lived(seen)
        });
        println!("{seen:#?}");
        assert!(
            seen.dirty.is_empty(),
            "the handler made system calls that are not allowed: {seen:#?}"
        );
        assert!(
            seen.total() >= 1000 && lived(&seen),
            "too few runs were seen: {seen:#?}"
        );
    });
}
