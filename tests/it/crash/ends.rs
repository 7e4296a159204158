//! Ends of a process that leave its file, and ends that remove it.

use super::kills::check;
use super::roles::{self, Reports};
use super::{Folder, rescued};
use crate::common::typed_markers::typed_markers;

const CAPACITY: u64 = 64 << 20;

fn run(end: &str, folder: &Folder) -> Reports {
    let path = folder.path("file");
    let recording = roles::start(&mut roles::command(end, CAPACITY, Some(&path)));
    let (status, reports) = recording.end();
    eprintln!("{end}: {status}, {:?}", reports.last);
    reports
}

#[test]
fn crash_of_any_kind_leaves_the_file() {
    for end in [
        "abort",
        "stack overflow",
        "panic that cannot unwind",
        "_exit",
        "exec",
        "fault",
        "return",
    ] {
        let folder = Folder::new("ends");
        let reports = run(end, &folder);
        assert_eq!(folder.names(), ["file"], "{end}");
        let read = rescued(&folder.path("file"));
        check(&read, &reports, true);
        // A thread that had ended before.
        let ended = typed_markers(&read, "ended thread");
        assert_eq!(ended.len(), 1, "{end}");
        assert_eq!(ended[0].text("text"), "ended 0");
        let meta = &read.0["meta"];
        assert_eq!(meta["rescued"]["processStillRan"], false);
        assert_eq!(meta["misc"], "rv:1.2.3");
    }
}

#[test]
fn orderly_end_removes_the_file() {
    for end in ["stop", "shutdown"] {
        let folder = Folder::new("orderly");
        run(end, &folder);
        assert_eq!(folder.names(), [""; 0], "{end}");
    }
}

#[test]
fn saved_last_profile_removes_the_file() {
    let folder = Folder::new("saved");
    let mut command = roles::command("return", CAPACITY, Some(&folder.path("file")));
    command
        .env("MOZ_PROFILER_SHUTDOWN", folder.path("out.json"))
        .env("MOZ_PROFILER_SYMBOLICATE", "0");
    roles::start(&mut command).end();
    assert_eq!(folder.names(), ["out.json"]);
}

#[test]
fn child_of_a_fork_writes_nothing_into_the_file() {
    let folder = Folder::new("fork");
    let reports = run("fork, and the child goes on", &folder);
    let forked = reports
        .lines
        .iter()
        .find_map(|line| line.strip_prefix("child "));
    let forked: i32 = forked.expect("a child").parse().expect("an id");
    let path = folder.path("file");
    let read = rescued(&path);
    check(&read, &reports, true);
    // The child has no lock on the file, so the next start can rename it.
    let next = roles::start(&mut roles::command("stop", CAPACITY, Some(&path)));
    next.end();
    let names = folder.names();
    assert!(
        names.len() == 1 && names[0].starts_with("file.left-by-"),
        "{names:?}"
    );
    // SAFETY: sends a signal to the process that the test's child has forked.
    unsafe { libc::kill(forked, libc::SIGKILL) };
}
