//! A child of `fork` that finds the standard library's lock of the environment held.

use std::os::unix::process::CommandExt;
use std::panic::catch_unwind;
use std::process::Command;
use std::sync::mpsc::channel;

use nix::unistd::alarm;

use crate::common::{LONGEST_WAIT, isolated, mark, wait_until};
use gekkota::{AutoProfilerInit, ProfilerSession, StartParams};

/// Sets a variable on a thread that waits for the lock, so that readers wait for it, too.
fn let_readers_wait() {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        sender.send(nix::unistd::gettid()).expect("the child waits");
        // SAFETY: never returns: the lock is held for ever.
        unsafe { std::env::set_var("GEKKOTA_TEST_VARIABLE", "set") };
    });
    let thread = receiver.recv_timeout(LONGEST_WAIT).expect("a thread");
    wait_until("the thread waits for the lock", || {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
        stat.is_ok_and(|stat| stat.contains(") S "))
    });
}

fn profile_in_child(file: &std::path::Path, readers_wait: bool) {
    if readers_wait {
        let_readers_wait();
    }
    let profiler = AutoProfilerInit::new();
    gekkota::profiler_save_at_exit(file).expect("a thread");
    let params = StartParams::default().children(true);
    let session = ProfilerSession::start(params).expect("a session");
    mark("in the child");
    session.finish().expect("a profile");
    drop(profiler);
}

fn assert_child_does_not_hang(readers_wait: bool) {
    let file = std::env::temp_dir().join(format!("gekkota-locked-{}", std::process::id()));
    let in_child = move || {
        // Kills a child that hangs.
        alarm::set(240);
        let is_well = catch_unwind(|| profile_in_child(&file, readers_wait)).is_ok();
        let _ = std::fs::remove_file(&file);
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(!is_well)) }
    };
    let mut command = Command::new("true");
    // The standard library holds the lock while it forks, and the child runs no program.
    // SAFETY: glibc lets the child of a program with threads call any function.
    unsafe { command.pre_exec(in_child) };
    let status = command.status().expect("a child");
    assert!(status.success(), "{status}");
}

#[test]
fn child_that_cannot_write_the_environment_does_not_hang() {
    isolated(|| assert_child_does_not_hang(false));
}

#[test]
fn child_that_cannot_read_the_environment_does_not_hang() {
    isolated(|| assert_child_does_not_hang(true));
}
