//! What a family does to the processes that it runs in.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gekkota::process::profiler_env_vars_for_child_process;

use crate::common::{Read, isolated, registered_threads_only, thread_names, wait_until};
use crate::family::roles::{
    Member, marks_in, marks_of, process_of, processes_of, read_family, spawn_member, start_family,
    wait_for_children, wait_for_event,
};

const VARIABLE: &str = "GEKKOTA_FAMILY";

/// Returns the variable that children get.
pub(super) fn invitation() -> Option<String> {
    let variables = profiler_env_vars_for_child_process().into_iter();
    let mut values = variables.filter(|(name, _)| name == VARIABLE);
    values.next().map(|(_, value)| value)
}

/// Returns the socket that this process listens on.
pub(super) fn socket() -> PathBuf {
    let invitation = invitation().expect("the process listens");
    PathBuf::from(invitation.splitn(4, ':').nth(3).expect("a path"))
}

/// Returns the process's open descriptors.
fn descriptors() -> BTreeMap<i32, PathBuf> {
    let listing = PathBuf::from(format!("/proc/{}/fd", std::process::id()));
    let entries = std::fs::read_dir(&listing).expect("descriptors");
    let of_entry = |entry: std::fs::DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let file = std::fs::read_link(entry.path()).ok()?;
        // The listing has one, whose number depends on what else is open at that moment.
        (file != listing).then_some((number, file))
    };
    entries.flatten().filter_map(of_entry).collect()
}

#[test]
fn nothing_listens_unless_children_are_asked_for() {
    isolated(|| {
        gekkota::profiler_init();
        gekkota::profiler_start(registered_threads_only()).expect("start");
        assert_eq!(invitation(), None);
        assert!(!thread_names().iter().any(|name| name == "ProfilerFamily"));
        let mut child = Member::spawn();
        assert!(!child.ask("shutdown").contains("ProfilerOrders"));
        child.kill();
    });
}

#[test]
fn family_takes_none_of_the_applications_descriptors() {
    isolated(|| {
        gekkota::profiler_init();
        let before = descriptors();
        start_family();
        let child = spawn_member(1);
        let profile = read_family();
        assert_eq!(marks_of(&profile, child.id()), [""; 0]);
        let is_known = |(number, file): (&i32, &PathBuf)| {
            // The pipes to the child are the test's own.
            before.get(number) == Some(file) || file.to_string_lossy().starts_with("pipe:")
        };
        let after = descriptors();
        assert!(after.iter().all(is_known), "{before:?} {after:?}");
        child.kill();
        gekkota::profiler_shutdown();
    });
}

#[test]
fn socket_is_private_and_goes_with_the_profiler() {
    use std::os::unix::fs::PermissionsExt;
    isolated(|| {
        gekkota::profiler_init();
        start_family();
        let socket = socket();
        let folder = socket.parent().expect("a folder").to_owned();
        let mode = |path| {
            std::fs::metadata(path)
                .expect("it is there")
                .permissions()
                .mode()
        };
        assert_eq!(mode(&folder) & 0o777, 0o700);
        // It stays from session to session.
        gekkota::profiler_stop();
        start_family();
        assert_eq!(self::socket(), socket);
        gekkota::profiler_shutdown();
        assert!(!folder.exists());
        assert_eq!(invitation(), None);
        wait_until("its threads have ended", || {
            !thread_names().iter().any(|name| name == "ProfilerMailbox")
        });
    });
}

#[test]
fn socket_goes_at_exit_and_by_the_next_family_after_a_kill() {
    isolated(|| {
        gekkota::profiler_init();
        start_family();
        let mut child = spawn_member(1);
        let of_child = |child: &Member| {
            let parent = socket()
                .parent()
                .and_then(|folder| folder.parent())
                .expect("a folder")
                .to_owned();
            let prefix = format!("gekkota-family-{}-", child.id());
            let names = std::fs::read_dir(parent).expect("readable").flatten();
            names
                .filter(|name| name.file_name().to_string_lossy().starts_with(&prefix))
                .count()
        };
        // The child listens for its own children.
        assert_eq!(of_child(&child), 1);
        let killed = child.id();
        child.signal(libc::SIGKILL);
        let was = Member::wait(child);
        assert!(!was.success());
        child = Member::spawn();
        wait_until("the folder of the killed process is gone", || {
            let parent = socket()
                .parent()
                .and_then(|folder| folder.parent())
                .expect("a folder")
                .to_owned();
            let prefix = format!("gekkota-family-{killed}-");
            let names = std::fs::read_dir(parent).expect("readable").flatten();
            names
                .filter(|name| name.file_name().to_string_lossy().starts_with(&prefix))
                .count()
                == 0
        });
        wait_for_children(1);
        assert_eq!(of_child(&child), 1);
        child.order("exit");
        let exited = child.id();
        Member::wait(child);
        let prefix = format!("gekkota-family-{exited}-");
        let parent = socket()
            .parent()
            .and_then(|folder| folder.parent())
            .expect("a folder")
            .to_owned();
        let names = std::fs::read_dir(parent).expect("readable").flatten();
        assert_eq!(
            names
                .filter(|name| name.file_name().to_string_lossy().starts_with(&prefix))
                .count(),
            0
        );
    });
}

#[test]
fn socket_of_a_family_that_code_has_begun_goes_at_exit() {
    isolated(|| {
        // This process has no session, so the child has none either.
        let mut child = Member::spawn();
        let socket = PathBuf::from(child.ask("start"));
        assert!(socket.exists());
        child.order("exit");
        assert!(child.wait().success());
        assert!(!socket.exists());
        assert!(!socket.parent().expect("a folder").exists());
    });
}

#[test]
fn child_of_fork_joins_like_any_other() {
    isolated(|| {
        gekkota::profiler_init();
        start_family();
        // SAFETY: glibc allows its allocator and its threads in the child.
        let child = match unsafe { libc::fork() } {
            0 => {
                // It has no part of the parent's session until here.
                assert!(!gekkota::profiler_is_active());
                gekkota::profiler_init();
                wait_until("the parent has started it", gekkota::profiler_is_active);
                crate::common::mark("m of the fork");
                gekkota::profiler_shutdown();
                // SAFETY: ends the process.
                unsafe { libc::_exit(0) }
            }
            child => child,
        };
        let mut status = 0;
        // SAFETY: the kernel writes to a local.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        wait_for_event("a child process has ended, and has sent its profile");
        let profile = read_family();
        let of_child = process_of(&profile, child).expect("its profile");
        let mut markers = of_child.markers("GeckoMain").into_iter();
        assert!(markers.any(|marker| marker.0 == "m of the fork"));
        // The parent's own family still works.
        let other = spawn_member(1);
        other.kill();
    });
}

#[test]
fn child_of_fork_that_does_not_join_disturbs_nothing() {
    isolated(|| {
        gekkota::profiler_init();
        start_family();
        let socket = socket();
        let mut child = spawn_member(1);
        // SAFETY: glibc allows its allocator and its threads in the child.
        let forked = match unsafe { libc::fork() } {
            0 => {
                assert_eq!(invitation(), None);
                std::process::exit(0);
            }
            forked => forked,
        };
        let mut status = 0;
        // SAFETY: the kernel writes to a local.
        assert_eq!(unsafe { libc::waitpid(forked, &mut status, 0) }, forked);
        assert_eq!(status, 0);
        assert!(
            socket.exists(),
            "the child has not removed its parent's socket"
        );
        child.ask("mark m");
        assert_eq!(marks_of(&read_family(), child.id()), ["m"]);
        child.kill();
    });
}

#[test]
fn program_that_executes_itself_joins_again() {
    isolated(|| {
        gekkota::profiler_init();
        start_family();
        let mut child = spawn_member(1);
        child.ask("mark m before");
        child.order("exec");
        // The old connection has ended, and the new one has begun.
        wait_for_event("a child process has ended without sending its profile, which was rescued");
        wait_for_children(1);
        child.ask("mark m");
        let profile = read_family();
        let images = processes_of(&profile, child.id());
        let marks: Vec<_> = images.iter().map(marks_in).collect();
        assert_eq!(marks, [["m before"], ["m"]]);
        // The viewer shows one main thread for a process.
        let has_main = |image: &Read| {
            let threads = image.0["threads"].as_array().expect("threads");
            threads.iter().any(|thread| thread["name"] == "GeckoMain")
        };
        assert!(!has_main(&images[0]) && has_main(&images[1]));
        child.kill();
    });
}

/// In a sandbox the profiler's threads have no descriptor table of their own.
#[test]
#[cfg(target_arch = "x86_64")]
fn family_works_in_a_sandbox_and_a_forked_child_keeps_no_connection() {
    isolated(|| {
        use crate::common::seccomp::Filtered;
        gekkota::profiler_init();
        crate::sampling::sandbox::kill_for(
            Filtered::AllThreads,
            &[libc::SYS_close_range, libc::SYS_unshare],
        );
        start_family();
        let mut child = spawn_member(1);
        child.ask("mark m");
        assert_eq!(marks_of(&read_family(), child.id()), ["m"]);
        // SAFETY: the child makes only calls that glibc allows there.
        let forked = match unsafe { libc::fork() } {
            0 => {
                let sockets = descriptors();
                let mut sockets = sockets.values().map(|file| file.to_string_lossy());
                let keeps_any = sockets.any(|file| file.starts_with("socket:"));
                // SAFETY: ends the process.
                unsafe { libc::_exit(i32::from(keeps_any)) }
            }
            forked => forked,
        };
        let mut status = 0;
        // SAFETY: the kernel writes to a local.
        assert_eq!(unsafe { libc::waitpid(forked, &mut status, 0) }, forked);
        assert_eq!(status, 0, "the child has a copy of a socket");
        child.order("exit");
        child.wait();
        wait_for_event("a child process has ended, and has sent its profile");
        gekkota::profiler_shutdown();
    });
}

#[test]
fn family_goes_on_below_the_limit_of_open_files() {
    isolated(|| {
        gekkota::profiler_init();
        start_family();
        let mut child = spawn_member(1);
        let mut before = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // The kernel waits for no more sockets than a process may have files.
        // SAFETY: the kernel writes to a local, and reads another one.
        unsafe {
            assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut before), 0);
            let tiny = libc::rlimit {
                rlim_cur: 1,
                ..before
            };
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &tiny), 0);
        }
        for _ in 0..3 {
            gekkota::profiler_pause();
            wait_until("the child has paused", || {
                child.ask("state").contains(" paused=true")
            });
            gekkota::profiler_resume();
            wait_until("the child goes on", || {
                child.ask("state").contains(" paused=false")
            });
        }
        // SAFETY: the kernel reads a local.
        unsafe { assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &before), 0) };
        child.ask("mark m");
        assert_eq!(marks_of(&read_family(), child.id()), ["m"]);
        child.kill();
    });
}

/// The child sees itself as process 1.
#[test]
fn child_in_another_namespace_of_processes_is_gathered_and_rescued() {
    isolated(|| {
        let arguments = ["--pid", "--fork", "--kill-child"];
        let mut can_unshare = std::process::Command::new("unshare");
        can_unshare.args(arguments).arg("true");
        if !can_unshare
            .output()
            .is_ok_and(|ended| ended.status.success())
        {
            eprintln!("skipped: there is no unshare, or this user may not make a namespace");
            return;
        }
        gekkota::profiler_init();
        start_family();
        let mut child = Member::spawn_through("unshare", &arguments);
        wait_for_children(1);
        child.ask("mark m");
        assert_eq!(marks_of(&read_family(), 1), ["m"]);
        child.kill();
        wait_for_event("a child process has ended without sending its profile, which was rescued");
        let profile = read_family();
        assert_eq!(marks_of(&profile, 1), ["m"]);
        // It has ended, and was not replaced by another program.
        let rescued = process_of(&profile, 1).expect("its profile");
        assert!(rescued.0["meta"]["shutdownTime"].is_number());
    });
}
