//! A pipe without a reader does not end a program that leaves `SIGPIPE` at its default action, as C
//! programs and many command line tools do.

use std::os::fd::AsRawFd as _;
use std::process::Stdio;

use crate::common::{isolated, wait_until};
use crate::saving::{Folder, command_of_role, has_role, link_to_descriptor, start};
use gekkota::{SaveError, profiler_save_profile_to_file};

/// Lets `SIGPIPE` end the process, as it does before Rust's runtime ignores it.
fn set_default_sigpipe() {
    // SAFETY: the signal's action is a constant.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Returns whether `SIGPIPE` is blocked on this thread, and whether it is pending.
fn sigpipe_state() -> (bool, bool) {
    // SAFETY: the kernel writes to locals.
    unsafe {
        let (mut blocked, mut pending) = std::mem::zeroed();
        let (none, how) = (std::ptr::null(), libc::SIG_BLOCK);
        assert_eq!(libc::pthread_sigmask(how, none, &mut blocked), 0);
        assert_eq!(libc::sigpending(&mut pending), 0);
        let contains = |set| libc::sigismember(set, libc::SIGPIPE) == 1;
        (contains(&blocked), contains(&pending))
    }
}

/// Saves to a pipe without a reader, and returns the error.
fn save_to_closed_pipe() -> SaveError {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let home = Folder::new("home");
    link_to_descriptor(&home.path("stdout"), &writer);
    let saved = profiler_save_profile_to_file(home.path("stdout"));
    saved.expect_err("no reader")
}

/// Starts the profiler by variables, which prints a notice to standard error.
#[test]
#[ignore = "runs only as a child of another test"]
fn role_of_the_noticed_child() {
    if !has_role(role_of_the_noticed_child) {
        return;
    }
    set_default_sigpipe();
    let _profiler = gekkota::AutoProfilerInit::new();
    println!("active: {}", gekkota::profiler_is_active());
    println!("blocked and pending: {:?}", sigpipe_state());
}

#[test]
fn notice_to_a_closed_pipe_does_not_end_the_program() {
    isolated(|| {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = command_of_role(role_of_the_noticed_child);
        command.env("MOZ_PROFILER_STARTUP", "1").stderr(writer);
        let output = command.stdout(Stdio::piped()).output().expect("the child");
        assert!(output.status.success(), "{output:?}");
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(
            stdout.contains("active: true")
                && stdout.contains("blocked and pending: (false, false)"),
            "{stdout}"
        );
    });
}

#[test]
fn save_to_a_closed_pipe_is_an_error() {
    isolated(|| {
        set_default_sigpipe();
        let _session = start();
        let error = save_to_closed_pipe();
        assert!(
            matches!(&error, SaveError::Io { error, action: "write", .. }
                if error.kind() == std::io::ErrorKind::BrokenPipe),
            "{error}"
        );
        assert_eq!(sigpipe_state(), (false, false));
    });
}

/// The kernel accepts a part of the write, raises the signal, and reports the part.
#[test]
fn reader_that_leaves_during_a_write_does_not_end_the_program() {
    const CAPACITY: libc::c_int = 4096;
    isolated(|| {
        set_default_sigpipe();
        let _session = start();
        let (reader, writer) = std::io::pipe().expect("a pipe");
        // SAFETY: the call accesses no memory of the process.
        let capacity = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, CAPACITY) };
        assert_eq!(capacity, CAPACITY);
        let home = Folder::new("home");
        link_to_descriptor(&home.path("stdout"), &writer);
        let leaves = std::thread::spawn(move || {
            wait_until("the pipe is full", || {
                let mut bytes: libc::c_int = 0;
                // SAFETY: the kernel writes to a local.
                let answer =
                    unsafe { libc::ioctl(reader.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
                assert_eq!(answer, 0);
                bytes == CAPACITY
            });
            drop(reader);
        });
        let saved = profiler_save_profile_to_file(home.path("stdout"));
        saved.expect_err("the reader has left");
        leaves.join().expect("no panic");
        assert_eq!(sigpipe_state(), (false, false));
    });
}

#[test]
fn hosts_pending_sigpipe_stays_pending() {
    isolated(|| {
        set_default_sigpipe();
        let _session = start();
        // SAFETY: the set is a local, and the signal is blocked before it is raised.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGPIPE);
            let how = libc::SIG_BLOCK;
            assert_eq!(libc::pthread_sigmask(how, &set, std::ptr::null_mut()), 0);
            assert_eq!(libc::raise(libc::SIGPIPE), 0);
        }
        save_to_closed_pipe();
        assert_eq!(sigpipe_state(), (true, true));
    });
}
