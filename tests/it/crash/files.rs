//! Where the file is, and what happens if something is there already.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use gekkota::profile::{Format, Symbolicate};
use gekkota::{Profile, ProfilerSession, StartParams};

use super::roles;
use super::{Folder, rescued};
use crate::common::{Read, isolated, mark};

const CAPACITY: u64 = 1 << 20;

#[test]
fn variable_names_the_file_of_any_session() {
    let folder = Folder::new("variable");
    let mut command = roles::command("kill", CAPACITY, None);
    command.env("MOZ_PROFILER_CRASH_FILE", folder.path("%n-%t-%p"));
    let mut recording = roles::start(&mut command);
    let expected = format!("crashing-default-{}", recording.child.id());
    assert_eq!(folder.names(), [expected.as_str()]);
    let path = folder.path(&expected);
    let mode = fs::metadata(&path).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    recording.child.kill().expect("the child runs");
    recording.end();
    rescued(&path);
}

#[test]
fn next_start_keeps_what_an_ended_process_has_left() {
    let folder = Folder::new("next");
    let path = folder.path("file");
    let mut first = None;
    for _ in 0..12 {
        let mut recording = roles::start(&mut roles::command("kill", CAPACITY, Some(&path)));
        first.get_or_insert(recording.child.id());
        recording.child.kill().expect("the child runs");
        let (_, reports) = recording.end();
        if reports.stderr.contains("left-by") {
            assert!(
                reports
                    .stderr
                    .contains("ended without stopping the profiler; its data are kept"),
                "{}",
                reports.stderr
            );
        }
    }
    let names = folder.names();
    // The newest eight, and that of the last one.
    assert_eq!(names.len(), 9, "{names:?}");
    let oldest = format!("file.left-by-{}", first.expect("a process"));
    assert!(!names.contains(&oldest), "{names:?}");
    names
        .iter()
        .for_each(|name| drop(rescued(&folder.path(name))));
}

#[test]
fn file_of_a_running_process_is_read_and_not_replaced() {
    let folder = Folder::new("running");
    let path = folder.path("file");
    let mut first = roles::start(&mut roles::command("kill", 64 << 20, Some(&path)));
    let read = rescued(&path);
    assert_eq!(read.0["meta"]["rescued"]["processStillRan"], true);
    assert!(!read.samples("worker 0").is_empty());
    let mut second = roles::start(&mut roles::command("kill", CAPACITY, Some(&path)));
    let own = format!("file.{}", second.child.id());
    assert_eq!(folder.names(), ["file".to_owned(), own.clone()]);
    for child in [&mut first.child, &mut second.child] {
        child.kill().expect("the child runs");
    }
    let (_, reports) = first.end();
    super::kills::check(&rescued(&path), &reports, true);
    second.end();
    rescued(&folder.path(&own));
}

#[test]
fn session_without_a_usable_path_says_so_and_runs() {
    isolated(|| {
        let folder = Folder::new("unusable");
        let other = folder.path("other");
        fs::write(&other, b"not a crash file").expect("written");
        for path in [other.clone(), folder.0.clone(), folder.path("missing/file")] {
            let params = StartParams::default().crash_file(&path);
            let session = ProfilerSession::start(params).expect("a session");
            mark("recorded");
            let read = Read::from_profile(&session.snapshot().expect("active"));
            let events = read.logged_events();
            assert!(
                events.contains(&"the crash file could not be created"),
                "{path:?}: {events:?}"
            );
        }
        assert_eq!(fs::read(&other).expect("the file"), b"not a crash file");
        assert_eq!(folder.names(), ["other"]);
    });
}

#[test]
fn file_takes_no_more_of_the_disk_than_what_was_recorded() {
    /// Blocks of `stat`, in bytes.
    const BLOCK_BYTES: u64 = 512;
    isolated(|| {
        // SAFETY: refers to no memory.
        let populated =
            unsafe { libc::madvise(std::ptr::null_mut(), 0, libc::MADV_POPULATE_WRITE) };
        if populated != 0 {
            eprintln!("skipped: this kernel reserves no part of a file through its mapping");
            return;
        }
        let folder = Folder::new("sparse");
        let path = folder.path("file");
        let params = StartParams::default()
            .capacity_bytes(256 << 20)
            .crash_file(&path);
        let session = ProfilerSession::start(params).expect("a session");
        let taken = || {
            let file = fs::metadata(&path).expect("the file");
            assert!(file.len() > 256 << 20, "{file:?}");
            file.blocks() * BLOCK_BYTES
        };
        mark("recorded");
        assert!(taken() < 16 << 20, "{}", taken());
        let text = "x".repeat(1 << 10);
        let before = taken();
        (0..32 << 10).for_each(|_| mark(&text));
        let read = rescued(&path);
        assert!(read.0.to_string().contains("recorded"));
        assert!((before + (24 << 20)..before + (64 << 20)).contains(&taken()));
        assert_eq!(read.0["meta"]["rescued"]["chunksOutsideOfTheFile"], 0);
        drop(session);
        assert_eq!(folder.names(), [""; 0]);
    });
}

#[test]
fn full_disk_leaves_the_session_without_a_file() {
    isolated(|| {
        let folder = Folder::new("full");
        // SAFETY: gives this thread a list of mounts of its own.
        let has_own_mounts = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0;
        let target = std::ffi::CString::new(folder.0.to_str().expect("UTF-8")).expect("no zero");
        let (private, root) = (libc::MS_PRIVATE | libc::MS_REC, c"/");
        // SAFETY: the kernel reads texts that live longer than the calls.
        let is_mounted = has_own_mounts
            && unsafe {
                libc::mount(
                    c"none".as_ptr(),
                    root.as_ptr(),
                    std::ptr::null(),
                    private,
                    std::ptr::null(),
                ) == 0
                    && libc::mount(
                        c"tmpfs".as_ptr(),
                        target.as_ptr(),
                        c"tmpfs".as_ptr(),
                        0,
                        c"size=512k".as_ptr().cast(),
                    ) == 0
            };
        if !is_mounted {
            eprintln!("skipped: this user may not mount a file system");
            return;
        }
        let params = StartParams::default().crash_file(folder.path("file"));
        let session = ProfilerSession::start(params).expect("a session");
        mark("recorded");
        let read = Read::from_profile(&session.snapshot().expect("active"));
        assert!(
            read.logged_events()
                .contains(&"the crash file could not be created")
        );
        assert_eq!(folder.names(), [""; 0]);
        drop(session);
        // SAFETY: as above.
        unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
    });
}

#[test]
fn names_are_found_in_the_files_of_the_process() {
    let folder = Folder::new("names");
    let path = folder.path("file");
    let mut recording = roles::start(&mut roles::command("kill", 64 << 20, Some(&path)));
    recording.child.kill().expect("the child runs");
    recording.end();
    let profile = Profile::rescue(&path).expect("a profile");
    let mut text = Vec::new();
    let options = gekkota::profile::SnapshotOptions::default().symbolicate(Symbolicate::Full);
    profile
        .write_with(Format::Gecko, &mut text, &options)
        .expect("a vector never fails");
    let read = Read::from_text(&text);
    let frames = read
        .samples("worker 1")
        .into_iter()
        .flat_map(|sample| sample.stack);
    let names: Vec<String> = frames.collect();
    assert!(
        names.iter().any(|name| name.contains("crash::roles::work")),
        "{names:?}"
    );
    let summary = profile.summary().to_string();
    assert!(summary.contains("worker 1"), "{summary}");
}

#[test]
fn files_of_a_name_with_the_process_id_are_bounded() {
    let folder = Folder::new("pattern");
    let path = folder.path("crash-%p.file");
    fs::write(folder.path("crash-1.file"), b"not a crash file").expect("written");
    let mut running = roles::start(&mut roles::command("kill", CAPACITY, Some(&path)));
    let mut ended = Vec::new();
    for _ in 0..11 {
        let mut recording = roles::start(&mut roles::command("kill", CAPACITY, Some(&path)));
        ended.push(format!("crash-{}.file", recording.child.id()));
        recording.child.kill().expect("the child runs");
        recording.end();
    }
    let names = folder.names();
    assert!(names.contains(&"crash-1.file".to_owned()), "{names:?}");
    let of_running = format!("crash-{}.file", running.child.id());
    assert!(names.contains(&of_running), "{names:?}");
    // The newest, and the one before which the last start has looked.
    let kept = ended.iter().filter(|name| names.contains(name)).count();
    assert!((6..=9).contains(&kept), "{kept} of {names:?}");
    assert!(names.contains(&ended[10]) && names.contains(&ended[9]));
    assert!(!names.contains(&ended[0]), "{names:?}");
    running.child.kill().expect("the child runs");
    running.end();
}

#[test]
fn child_of_a_fork_cannot_read_its_parents_profile() {
    isolated(|| {
        let folder = Folder::new("fork-read");
        let params = StartParams::default().crash_file(folder.path("file"));
        let session = ProfilerSession::start(params).expect("a session");
        mark("recorded");
        let profile = session.snapshot().expect("active");
        // SAFETY: glibc allows its allocator and its threads in the child.
        let forked = match unsafe { libc::fork() } {
            0 => {
                let mut text = Vec::new();
                let written = profile.write(Format::Gecko, &mut text);
                let error = written.map_err(|error| error.to_string());
                let is_refused = error.is_err_and(|error| {
                    error.contains("cannot read the profile") && error.contains("expected process")
                });
                drop(profile);
                // SAFETY: ends the process.
                unsafe { libc::_exit(i32::from(!is_refused)) }
            }
            forked => forked,
        };
        let mut status = 0;
        // SAFETY: the kernel writes to a local.
        assert_eq!(unsafe { libc::waitpid(forked, &mut status, 0) }, forked);
        assert_eq!(status, 0);
        assert!(
            Read::from_profile(&profile)
                .0
                .to_string()
                .contains("recorded")
        );
    });
}

#[test]
fn variable_holds_for_a_child_whose_parent_is_gone() {
    let folder = Folder::new("orphan");
    let private = folder.path("gone");
    fs::create_dir(&private).expect("created");
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).expect("set");
    let socket = private.join("s");
    drop(std::os::unix::net::UnixListener::bind(&socket).expect("bound"));
    let path = folder.path("file");
    let mut command = roles::command("kill", CAPACITY, None);
    command
        .env("MOZ_PROFILER_CRASH_FILE", &path)
        .env("GEKKOTA_FAMILY", format!("1:1:ab:{}", socket.display()));
    let mut recording = roles::start(&mut command);
    assert_eq!(folder.names(), ["file", "gone"]);
    recording.child.kill().expect("the child runs");
    recording.end();
    rescued(&path);
}
