//! Ends of the process by a signal.

use std::io::Read as _;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::exits::set_handler;
use super::roles::{
    self, End, Ended, Folder, assert_saved, assert_whole, get_ready, wait_for_parent, work_forever,
};
use crate::common::isolated;

pub(super) const ENDS: &[(&str, End)] = &[
    ("work", |_profiler| {
        get_ready();
        work_forever();
    }),
    ("wait", |_profiler| {
        get_ready();
        wait_for_parent();
    }),
    ("own handler", |_profiler| {
        set_handler(libc::SIGTERM, note_in_handler);
        get_ready();
        exit_once_noted();
    }),
    ("own handler that calls the previous one", |_profiler| {
        // SAFETY: zeroed is a valid action, and the kernel writes to a local.
        let previous = unsafe {
            let mut previous: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGTERM, std::ptr::null(), &mut previous);
            previous.sa_sigaction
        };
        PREVIOUS.store(previous, Ordering::SeqCst);
        // SAFETY: zeroed is a valid action, and the handler has the signature of `SA_SIGINFO`.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(_, _, _) = chain_in_handler;
            (action.sa_sigaction, action.sa_flags) = (handler as usize, libc::SA_SIGINFO);
            libc::sigaction(libc::SIGTERM, &action, std::ptr::null_mut());
        }
        get_ready();
        exit_once_noted();
    }),
    ("sigwait", |_profiler| {
        get_ready();
        let mut signal = 0;
        // SAFETY: the set is initialized before use, and the kernel writes to a local.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGTERM);
            libc::sigwait(&set, &mut signal);
        }
        std::process::exit(signal);
    }),
];

static IS_NOTED: AtomicBool = AtomicBool::new(false);
static PREVIOUS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn note_in_handler(_: libc::c_int) {
    IS_NOTED.store(true, Ordering::SeqCst);
}

/// Calls the previous handler if it is a function, as the crate `signal-hook` does.
extern "C" fn chain_in_handler(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let previous = PREVIOUS.load(Ordering::SeqCst);
    if previous != libc::SIG_DFL && previous != libc::SIG_IGN {
        type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: the kernel held it, and the profiler's handlers take three arguments.
        let previous: Handler = unsafe { std::mem::transmute(previous) };
        previous(signal, info, context);
    }
    IS_NOTED.store(true, Ordering::SeqCst);
}

fn exit_once_noted() {
    while !IS_NOTED.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    std::process::exit(3);
}

fn send(child: &Child, signal: i32) {
    // SAFETY: accesses no memory; the child has not been waited for, so its id is its own.
    unsafe { libc::kill(child.id() as i32, signal) };
}

#[track_caller]
fn status_after(end: &str, signal: i32) -> ExitStatus {
    assert_saved(end, |_| {}, |child| send(child, signal))
}

#[test]
fn signals_of_the_user_save_once_and_end_the_process() {
    isolated(|| {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGABRT] {
            assert_eq!(status_after("work", signal).signal(), Some(signal));
            assert_eq!(status_after("wait", signal).signal(), Some(signal));
        }
    });
}

#[test]
fn handler_of_the_program_decides_what_the_signal_means() {
    isolated(|| {
        for end in ["own handler", "own handler that calls the previous one"] {
            assert_eq!(status_after(end, libc::SIGTERM).code(), Some(3), "{end}");
        }
    });
}

/// Lets a child begin with another action or mask.
fn before_exec(command: &mut Command, change: fn()) {
    // SAFETY: `change` makes one or two system calls, which a child of `fork` may do.
    unsafe {
        command.pre_exec(move || {
            change();
            Ok(())
        });
    }
}

#[test]
fn ignored_signal_stays_ignored() {
    isolated(|| {
        // SAFETY: accesses no memory.
        let ignore = || unsafe {
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
        };
        let status = assert_saved(
            "wait",
            |command| before_exec(command, ignore),
            |child| {
                let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
                let status = status.expect("a status");
                let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
                let ignored = u64::from_str_radix(ignored.expect("a line").trim(), 16);
                assert_eq!(ignored.expect("a mask") & 1, 1);
                send(child, libc::SIGHUP);
            },
        );
        assert_eq!(status.code(), Some(0));
    });
}

#[test]
fn blocked_signal_reaches_sigwait() {
    isolated(|| {
        // SAFETY: the set is initialized before use.
        let block = || unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGTERM);
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        };
        let status = assert_saved(
            "sigwait",
            |command| before_exec(command, block),
            |child| send(child, libc::SIGTERM),
        );
        assert_eq!(status.code(), Some(libc::SIGTERM));
    });
}

/// Runs a child whose save waits until the file, a pipe, is read.
fn run_with_pipe(end: &str, act: impl FnOnce(&mut Child, &std::path::Path)) -> Ended {
    let folder = Folder::new();
    let pipe = folder.0.join("out.json");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let mut command = roles::command(end);
    roles::run(command.envs(roles::variables(&pipe)), |child| {
        act(child, &pipe);
    })
}

fn read_pipe(pipe: &std::path::Path) -> Vec<u8> {
    let mut text = Vec::new();
    let mut file = std::fs::File::open(pipe).expect("the pipe");
    file.read_to_end(&mut text).expect("text");
    text
}

#[test]
fn second_interrupt_ends_the_process_at_once() {
    isolated(|| {
        let ended = run_with_pipe("work", |child, _| {
            // The pipe is never read, so the save never ends.
            while child.try_wait().expect("the child").is_none() {
                send(child, libc::SIGINT);
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        assert_eq!(ended.status.signal(), Some(libc::SIGINT), "{ended:?}");
        assert_eq!(ended.notices(), [""; 0], "{ended:?}");
    });
}

#[test]
fn further_hangups_do_not_cut_the_save() {
    isolated(|| {
        let ended = run_with_pipe("work", |child, pipe| {
            for _ in 0..4 {
                send(child, libc::SIGHUP);
                std::thread::sleep(Duration::from_millis(100));
            }
            assert_whole(&read_pipe(pipe));
        });
        assert_eq!(ended.status.signal(), Some(libc::SIGHUP), "{ended:?}");
    });
}

#[test]
fn return_of_main_during_the_save_of_a_signal_saves_once() {
    isolated(|| {
        let ended = run_with_pipe("wait", |child, pipe| {
            send(child, libc::SIGTERM);
            // The child's `main` returns.
            drop(child.stdin.take());
            assert_whole(&read_pipe(pipe));
        });
        assert_eq!(ended.status.signal(), Some(libc::SIGTERM), "{ended:?}");
        assert_eq!(ended.notices().len(), 1, "{ended:?}");
    });
}
