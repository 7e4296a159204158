//! Ends of the process by its own will: a return from `main`, `exit`, `abort`, `exec`.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;

use super::roles::{self, End, assert_saved, get_ready};
use crate::common::isolated;

pub(super) const ENDS: &[(&str, End)] = &[
    ("return", |_profiler| get_ready()),
    ("return without the guard's drop", |profiler| {
        std::mem::forget(profiler);
        get_ready();
    }),
    ("panic", |_profiler| {
        get_ready();
        panic!("on purpose");
    }),
    ("exit", |_profiler| {
        get_ready();
        std::process::exit(7);
    }),
    ("exit of another thread", |_profiler| {
        get_ready();
        let _ = std::thread::spawn(|| std::process::exit(8)).join();
    }),
    ("exit of C", |_profiler| {
        get_ready();
        // SAFETY: ends the process; the functions that were registered for that are whole.
        unsafe { libc::exit(9) };
    }),
    ("exit of three threads of C", |_profiler| {
        get_ready();
        let all_begin = std::sync::Arc::new(std::sync::Barrier::new(3));
        let exit = |_| {
            let all_begin = std::sync::Arc::clone(&all_begin);
            std::thread::spawn(move || {
                all_begin.wait();
                // SAFETY: as above. glibc lets several threads call it.
                unsafe { libc::exit(14) };
            })
        };
        let threads: Vec<_> = (0..3).map(exit).collect();
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }),
    ("exit in a handler", |_profiler| {
        get_ready();
        set_handler(libc::SIGUSR1, exit_in_handler);
        // SAFETY: accesses no memory.
        unsafe { libc::raise(libc::SIGUSR1) };
    }),
    ("exit beside a hundred threads", |_profiler| {
        for _ in 0..100 {
            std::thread::spawn(|| {
                loop {
                    drop(std::hint::black_box(vec![0_u8; 1000]));
                    gekkota::profiler_is_active();
                }
            });
        }
        get_ready();
        std::process::exit(10);
    }),
    ("exit beside a start", |_profiler| {
        for _ in 0..2 {
            std::thread::spawn(|| {
                loop {
                    // Takes the life-cycle lock, and keeps the session.
                    let signals = gekkota::ControlSignals::new();
                    let _ = gekkota::profiler_control_by_signals(signals);
                }
            });
        }
        get_ready();
        std::process::exit(11);
    }),
    ("abort", |_profiler| {
        get_ready();
        std::process::abort();
    }),
    ("abort of another thread", |_profiler| {
        get_ready();
        let _ = std::thread::spawn(|| std::process::abort()).join();
    }),
    ("panic out of C", |_profiler| {
        extern "C" fn panics() {
            panic!("on purpose");
        }
        get_ready();
        panics();
    }),
    ("panic in a destructor", |_profiler| {
        struct Panics;
        impl Drop for Panics {
            fn drop(&mut self) {
                panic!("once more on purpose");
            }
        }
        get_ready();
        let _panics = Panics;
        panic!("on purpose");
    }),
    ("stack overflow", |_profiler| {
        get_ready();
        let overflow = || std::hint::black_box(overflow_stack(std::hint::black_box(1)));
        let _ = std::thread::spawn(overflow).join();
    }),
    ("abort with a handler of the program", |_profiler| {
        set_handler(libc::SIGABRT, exit_in_handler);
        get_ready();
        std::process::abort();
    }),
    ("failed exec", |_profiler| {
        get_ready();
        let error = Command::new("/nonexistent/program").exec();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        std::process::exit(12);
    }),
    ("exec", |_profiler| {
        get_ready();
        panic!("{}", Command::new("true").exec());
    }),
];

extern "C" fn exit_in_handler(_: libc::c_int) {
    // SAFETY: the interrupted thread has called `raise` or `abort`, and holds no lock.
    unsafe { libc::exit(13) };
}

/// Installs a handler of the program.
pub(super) fn set_handler(signal: i32, handler: extern "C" fn(libc::c_int)) {
    // SAFETY: zeroed is a valid action, and the handler has the signature that its flags require.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

#[expect(unconditional_recursion, reason = "the stack is to overflow")]
fn overflow_stack(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 64]);
    overflow_stack(depth + 1) + frame[0]
}

#[track_caller]
fn code_of(end: &str) -> i32 {
    let status = assert_saved(end, |_| {}, |_| {});
    status.code().unwrap_or_else(|| panic!("{end}: {status}"))
}

#[track_caller]
fn signal_of(end: &str) -> i32 {
    let status = assert_saved(end, |_| {}, |_| {});
    status.signal().unwrap_or_else(|| panic!("{end}: {status}"))
}

#[test]
fn return_of_main_saves_once_with_and_without_the_guards_drop() {
    isolated(|| {
        assert_eq!(code_of("return"), 0);
        assert_eq!(code_of("return without the guard's drop"), 0);
    });
}

#[test]
fn panic_of_main_saves_once() {
    isolated(|| assert_eq!(code_of("panic"), 101));
}

#[test]
fn exit_saves_once_on_any_thread() {
    isolated(|| {
        assert_eq!(code_of("exit"), 7);
        assert_eq!(code_of("exit of another thread"), 8);
        assert_eq!(code_of("exit of C"), 9);
        assert_eq!(code_of("exit of three threads of C"), 14);
        assert_eq!(code_of("exit in a handler"), 13);
    });
}

#[test]
fn exit_beside_busy_threads_saves_once() {
    isolated(|| assert_eq!(code_of("exit beside a hundred threads"), 10));
}

#[test]
fn exit_while_another_thread_holds_the_life_cycle_lock_saves_once() {
    isolated(|| assert_eq!(code_of("exit beside a start"), 11));
}

#[test]
fn abort_saves_once_and_ends_by_its_signal() {
    isolated(|| {
        assert_eq!(signal_of("abort"), libc::SIGABRT);
        assert_eq!(signal_of("abort of another thread"), libc::SIGABRT);
    });
}

#[test]
fn panic_that_aborts_saves_once_and_ends_by_its_signal() {
    isolated(|| {
        assert_eq!(signal_of("panic out of C"), libc::SIGABRT);
        assert_eq!(signal_of("panic in a destructor"), libc::SIGABRT);
    });
}

#[test]
fn stack_overflow_saves_once_and_ends_by_its_signal() {
    isolated(|| assert_eq!(signal_of("stack overflow"), libc::SIGABRT));
}

#[test]
fn abort_runs_the_programs_own_handler() {
    isolated(|| assert_eq!(code_of("abort with a handler of the program"), 13));
}

#[test]
fn exec_that_fails_changes_nothing_and_one_that_succeeds_saves_nothing() {
    isolated(|| {
        assert_eq!(code_of("failed exec"), 12);
        let folder = roles::Folder::new();
        let file = folder.0.join("out.json");
        let mut command = roles::command("exec");
        let ended = roles::run(command.envs(roles::variables(&file)), |_| {});
        assert!(ended.status.success(), "{ended:?}");
        assert!(folder.files().is_empty(), "{ended:?}");
        assert_eq!(ended.notices(), [""; 0], "{ended:?}");
    });
}
