//! All system calls of the signal handler, as the kernel sees them: ptrace follows each thread from
//! the delivery of the profiler's signal until the handler has returned.
//!
//! A lock that waits, an allocation of new memory or a fault causes a system call or a signal, and
//! the test rejects all that are not in [`ALLOWED`]. `handler_steps.rs` finds functions that make
//! no system call, such as taking a free lock.

use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

use super::tracer::workload::{LIVES, be_profiled, be_signaled};
use super::tracer::{Go, StopReason, TIME_LIMIT, Traced, role};
use crate::common::isolated;

/// System calls that the handler may make: to read the clock where the vDSO cannot, to look for a
/// sandbox, to read memory that may be unmapped, and to return.
const ALLOWED: [libc::c_long; 4] = [
    libc::SYS_clock_gettime,
    libc::SYS_prctl,
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
        SYS_prctl,
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

/// Observations of the handler's runs.
#[derive(Debug, Default)]
struct Seen {
    /// Number of complete runs, by thread name.
    runs: BTreeMap<String, u32>,
    calls: BTreeMap<String, u32>,
    /// System calls and signals that are not allowed, each with an example.
    forbidden: BTreeMap<String, String>,
}

impl Seen {
    fn total(&self) -> u32 {
        self.runs.values().sum()
    }
}

/// Follows all runs of the handler until `is_enough` returns true or [`TIME_LIMIT`] has passed.
/// Then waits for the child's end.
fn follow(mut child: Traced, is_enough: impl Fn(&Seen) -> bool) -> Seen {
    let mut seen = Seen::default();
    let mut inside = HashSet::new();
    let end = Instant::now() + TIME_LIMIT;
    while let Some((thread, stop)) = child.next_stop() {
        match stop {
            StopReason::Signal {
                signal: libc::SIGURG,
                request: true,
            } if inside.insert(thread) => {
                child.go(thread, Go::ToSystemCall, libc::SIGURG);
            }
            StopReason::Signal { signal, .. } => {
                if inside.remove(&thread) {
                    seen.forbidden
                        .insert(format!("signal {signal}"), child.name_of(thread).to_owned());
                }
                child.go(thread, Go::On, signal);
            }
            StopReason::SystemCall(point) => {
                if let Some((call, arguments)) = point.entered {
                    *seen.calls.entry(name_of(call)).or_default() += 1;
                    let is_question =
                        call != libc::SYS_prctl || arguments[0] == libc::PR_GET_SECCOMP as u64;
                    if !(ALLOWED.contains(&call) && is_question) {
                        let example = format!("({arguments:x?}) at {:#x}", point.pc);
                        seen.forbidden.entry(name_of(call)).or_insert(example);
                    }
                }
                if point
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
            StopReason::Stepped => child.go(thread, Go::On, 0),
        }
        if is_enough(&seen) || Instant::now() > end {
            child.finish();
        }
    }
    seen
}

extern "C" fn writes(_: libc::c_int) {
    // SAFETY: `write` reads no memory for a length of 0.
    unsafe { libc::write(1, std::ptr::null(), 0) };
}

extern "C" fn allocates(_: libc::c_int) {
    drop(std::hint::black_box(vec![1u8; 4 << 20]));
}

#[test]
fn handler_makes_only_allowed_system_calls() {
    isolated(|| {
        const TEST: &str = "traced::handler_calls::handler_makes_only_allowed_system_calls";
        match role().as_deref() {
            Some("profiled") => return be_profiled(2000),
            Some("writes") => return be_signaled(writes, 20),
            Some("allocates") => return be_signaled(allocates, 20),
            Some(other) => panic!("no role {other}"),
            None => {}
        }

        // The test finds system calls that are not allowed.
        for (role, call) in [
            ("writes", "write"),
            ("allocates", "mmap"),
            ("allocates", "munmap"),
        ] {
            let seen = follow(Traced::start(TEST, role), |seen| seen.total() >= 20);
            assert!(seen.forbidden.contains_key(call), "{role}: {seen:?}");
        }

        let has_all_lives = |seen: &Seen| {
            LIVES
                .iter()
                .all(|life| seen.runs.get(*life).is_some_and(|runs| *runs >= 100))
        };
        let seen = follow(Traced::start(TEST, "profiled"), |seen| {
            seen.total() >= 3000 && has_all_lives(seen)
        });
        println!("{seen:#?}");
        assert!(
            seen.forbidden.is_empty(),
            "the handler made system calls that are not allowed: {seen:#?}"
        );
        assert!(
            seen.total() >= 1000 && has_all_lives(&seen),
            "the time limit has passed: {seen:#?}"
        );
    });
}
