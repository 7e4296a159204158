//! Ends of a process whose standard error, or whose file, is never read.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus};

use super::roles::{Ended, Folder, assert_whole, command, run, variables};
use crate::common::isolated;

/// Runs a child with this end, or until a signal if the end waits for the parent. A child that hangs
/// is killed by `SIGALRM`.
fn run_until_end(end: &str, prepare: impl FnOnce(&mut Command)) -> Ended {
    const WATCHDOG_SECONDS: libc::c_uint = 100;
    let mut command = command(end);
    prepare(&mut command);
    // SAFETY: the closure makes one system call.
    unsafe {
        command.pre_exec(|| {
            libc::alarm(WATCHDOG_SECONDS);
            Ok(())
        });
    }
    run(&mut command, |child| {
        if end == "wait" {
            // SAFETY: accesses no memory; the child has not been waited for.
            unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
            // The child's `main` must not return.
            std::mem::forget(child.stdin.take());
        }
    })
}

fn expected(end: &str) -> ExitStatus {
    ExitStatus::from_raw(match end {
        "wait" => libc::SIGTERM,
        "exit" => 7 << 8,
        _ => 0,
    })
}

/// Returns a pipe that is full, and its end that is to be read.
fn full_pipe() -> (OwnedFd, OwnedFd) {
    const CAPACITY: libc::c_int = 4096;
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    // SAFETY: the call accesses no memory of the process.
    let capacity = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, CAPACITY) };
    assert_eq!(capacity, CAPACITY);
    let bytes = [b'-'; CAPACITY as usize];
    writer.write_all(&bytes).expect("as much as it holds");
    (writer.into(), reader.into())
}

/// Returns both ends of a terminal: the one that programs write to, and the one that shows it.
fn terminal() -> (OwnedFd, OwnedFd) {
    let (mut shown, mut written) = (-1, -1);
    let (name, settings, size) = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
    // SAFETY: two pointers are to locals, and the others are null, as is allowed.
    let opened = unsafe { libc::openpty(&raw mut shown, &raw mut written, name, settings, size) };
    assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: both descriptors are open, and belong to nothing else.
    unsafe { (OwnedFd::from_raw_fd(written), OwnedFd::from_raw_fd(shown)) }
}

/// Returns a terminal after Ctrl-S.
fn stopped_terminal() -> (OwnedFd, OwnedFd) {
    let (written, shown) = terminal();
    // SAFETY: the call accesses no memory of the process.
    let answer = unsafe { libc::tcflow(written.as_raw_fd(), libc::TCOOFF) };
    assert_eq!(answer, 0);
    (written, shown)
}

/// Returns a terminal that is never read, and that has space for some lines, but not for a report.
fn nearly_full_terminal() -> (OwnedFd, OwnedFd) {
    const FREE_BYTES: usize = 300;
    let fill = |most| {
        let (written, shown) = terminal();
        let own = format!("/proc/self/fd/{}", written.as_raw_fd());
        let mut options = File::options();
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
        let mut file = options.write(true).open(own).expect("the terminal");
        let mut count = 0;
        while count < most && file.write(b"-").is_ok() {
            count += 1;
        }
        (count, written, shown)
    };
    let (capacity, ..) = fill(usize::MAX);
    let (_, written, shown) = fill(capacity - FREE_BYTES);
    (written, shown)
}

#[test]
fn process_whose_standard_error_does_not_drain_saves_and_ends() {
    isolated(|| {
        type Stream = fn() -> (OwnedFd, OwnedFd);
        let cases: [(&str, &str, Stream); 5] = [
            ("return", "full pipe", full_pipe),
            ("exit", "full pipe", full_pipe),
            ("wait", "full pipe", full_pipe),
            ("wait", "stopped terminal", stopped_terminal),
            ("wait", "nearly full terminal", nearly_full_terminal),
        ];
        for (end, name, stream) in cases {
            let folder = Folder::new();
            let file = folder.0.join("out.json");
            let (written, unread) = stream();
            let ended = run_until_end(end, |command| {
                command.envs(variables(&file)).stderr(written);
                command.env("MOZ_PROFILER_REPORT", "1");
            });
            assert_eq!(ended.status, expected(end), "{end}, {name}: {ended:?}");
            assert_whole(&std::fs::read(&file).expect("text"));
            drop(unread);
        }
    });
}

#[test]
fn pipe_without_a_reader_as_the_file_does_not_keep_the_process() {
    isolated(|| {
        for end in ["return", "exit", "wait"] {
            let folder = Folder::new();
            let pipe = folder.0.join("out.json");
            nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
            let ended = run_until_end(end, |command| {
                command.envs(variables(&pipe));
            });
            assert_eq!(ended.status, expected(end), "{end}: {ended:?}");
            let notices = ended.notices().join("\n");
            assert!(notices.contains("got no reader"), "{end}: {notices}");
        }
    });
}
