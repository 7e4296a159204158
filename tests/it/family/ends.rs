//! Children that end send their last profile.

use gekkota::profile::SnapshotOptions;

use crate::common::{LONGEST_WAIT, Read, isolated, wait_until};
use crate::family::roles::{
    gathering_events, marks_of, process_of, read_family, read_with, spawn_member, start_family,
    wait_for_event,
};

/// Lets a child end, and returns the profile of this process afterwards.
#[track_caller]
fn profile_after(end: impl FnOnce(crate::family::roles::Member) -> i32) -> Read {
    gekkota::profiler_init();
    start_family();
    let mut child = spawn_member(1);
    child.ask("mark m");
    let process = end(child);
    wait_for_event("a child process has ended, and has sent its profile");
    let profile = read_family();
    assert_eq!(marks_of(&profile, process), ["m"]);
    assert_eq!(gathering_events(&profile), [""; 0]);
    profile
}

#[test]
fn child_that_exits_sends_its_profile() {
    isolated(|| {
        profile_after(|mut child| {
            let process = child.id();
            child.order("exit");
            assert!(child.wait().success());
            process
        });
    });
}

#[test]
fn child_that_a_signal_ends_sends_its_profile() {
    isolated(|| {
        profile_after(|child| {
            use std::os::unix::process::ExitStatusExt;
            let process = child.id();
            child.signal(libc::SIGTERM);
            assert_eq!(child.wait().signal(), Some(libc::SIGTERM));
            process
        });
    });
}

#[test]
fn child_that_aborts_sends_its_profile() {
    isolated(|| {
        profile_after(|mut child| {
            let process = child.id();
            child.order("abort");
            child.wait();
            process
        });
    });
}

#[test]
fn child_that_shuts_the_profiler_down_sends_its_profile_and_leaves() {
    isolated(|| {
        profile_after(|mut child| {
            let process = child.id();
            child.ask("shutdown");
            // The process continues without the profiler's threads.
            wait_until("its threads have ended", || {
                !child.ask("shutdown").contains("Profiler")
            });
            // Its membership has ended, too.
            wait_for_event("a child process has ended, and has sent its profile");
            child.kill();
            process
        });
    });
}

#[test]
fn profile_of_a_child_that_is_killed_is_rescued() {
    isolated(|| {
        gekkota::profiler_init();
        start_family();
        let (mut one, mut other) = (spawn_member(1), spawn_member(2));
        one.ask("mark m");
        other.ask("mark m");
        let killed = other.id();
        other.kill();
        // At once: the rescue is part of the gathering.
        let options = SnapshotOptions::default().child_timeout(LONGEST_WAIT);
        let profile = read_with(options);
        assert_eq!(marks_of(&profile, killed), ["m"]);
        assert_eq!(marks_of(&profile, one.id()), ["m"]);
        wait_for_event("a child process has ended without sending its profile, which was rescued");
        // From now on, the child counts as exited.
        let profile = read_family();
        assert_eq!(marks_of(&profile, killed), ["m"]);
        let rescued = process_of(&profile, killed).expect("its profile");
        assert!(rescued.0["meta"]["shutdownTime"].is_number());
        one.kill();
    });
}

#[test]
fn child_of_a_stopped_parent_ends_in_bounded_time() {
    isolated(|| {
        gekkota::profiler_init();
        start_family();
        let mut parent = spawn_member(1);
        let child: i32 = parent.ask("spawn").parse().expect("an id");
        parent.ask("children 1");
        // More than the socket takes while the parent does not read.
        parent.ask("child markers 30000");
        parent.signal(libc::SIGSTOP);
        // SAFETY: accesses no memory.
        assert_eq!(unsafe { libc::kill(child, libc::SIGTERM) }, 0);
        wait_until("the child has ended", || {
            // It stays as a zombie, because its parent is stopped.
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat"));
            stat.is_ok_and(|stat| stat.contains(") Z"))
        });
        parent.kill();
    });
}
