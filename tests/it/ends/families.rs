//! Children of `fork`, and programs that the process starts with the same variables.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use super::roles::{
    End, Folder, ONE_THREAD, assert_saved, assert_whole, command, command_of, get_ready, run,
    variables,
};
use crate::common::isolated;

pub(super) const ENDS: &[(&str, End)] = &[
    ("fork, and the child exits", |_profiler| {
        get_ready();
        let status = in_child(|| std::process::exit(5));
        assert_eq!(libc::WEXITSTATUS(status), 5);
        std::process::exit(6);
    }),
    ("fork, and the child drops the guard", |profiler| {
        get_ready();
        let mut profiler = Some(profiler);
        in_child(|| drop(profiler.take()));
        std::process::exit(6);
    }),
    ("fork, and a signal ends the child", |_profiler| {
        get_ready();
        let status = in_child(|| {
            // SAFETY: accesses no memory.
            unsafe { libc::raise(libc::SIGTERM) };
        });
        assert_eq!(libc::WTERMSIG(status), libc::SIGTERM);
        std::process::exit(6);
    }),
    ("fork twice, and become a daemon", |profiler| {
        get_ready();
        if fork() != 0 {
            std::process::exit(0);
        }
        // SAFETY: accesses no memory.
        unsafe { libc::setsid() };
        if fork() != 0 {
            std::process::exit(0);
        }
        drop(profiler);
        std::process::exit(0);
    }),
    ("fork, and the child profiles itself", |_profiler| {
        get_ready();
        in_child(|| {
            gekkota::profiler_init();
            crate::common::mark("in the child");
            assert!(gekkota::profiler_is_active());
            std::process::exit(0);
        });
        std::process::exit(6);
    }),
    ("start a program", |_profiler| {
        get_ready();
        let ended = run(&mut command("exit"), |_| {});
        assert_eq!(ended.status.code(), Some(7), "{ended:?}");
        eprint!("{}", ended.stderr);
        std::process::exit(6);
    }),
];

fn fork() -> i32 {
    // SAFETY: glibc allows its allocator and its threads in the child.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    child
}

/// Runs `body` in a child of `fork`, and returns the child's status.
fn in_child(body: impl FnOnce()) -> i32 {
    match fork() {
        0 => {
            body();
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the kernel writes to a local.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            status
        }
    }
}

#[test]
fn ends_of_forked_children_save_nothing() {
    isolated(|| {
        for end in [
            "fork, and the child exits",
            "fork, and a signal ends the child",
        ] {
            assert_eq!(assert_saved(end, |_| {}, |_| {}).code(), Some(6), "{end}");
        }
    });
}

#[test]
fn daemon_leaves_its_parents_file_as_it_is() {
    isolated(|| {
        for (end, code) in [
            ("fork, and the child drops the guard", 6),
            ("fork twice, and become a daemon", 0),
        ] {
            let folder = Folder::new();
            let file = folder.0.join("out.json");
            let ended = run(command(end).envs(variables(&file)), |_| {});
            assert_eq!(ended.status.code(), Some(code), "{ended:?}");
            assert_eq!(folder.files(), std::slice::from_ref(&file), "{ended:?}");
            assert_whole(&std::fs::read(&file).expect("text"));
            let of_child = "the profiler does not run in a child of fork";
            assert!(ended.stderr.contains(of_child), "{ended:?}");
        }
    });
}

/// Asserts that the folder has the parent's file, and the child's under a name of its own.
#[track_caller]
fn assert_two_files(folder: &Folder, file: &Path, stderr: &str) {
    let files = folder.files();
    let [of_child, of_parent] = &files[..] else {
        panic!("{files:?} {stderr}");
    };
    assert_eq!(of_parent, file);
    let name = of_child.file_name().expect("a name").to_string_lossy();
    let id = name
        .strip_prefix("out.")
        .and_then(|rest| rest.strip_suffix(".json"));
    assert!(id.is_some_and(|id| id.parse::<u32>().is_ok()), "{name}");
    let line = format!("saved the profile as {}, because ", of_child.display());
    assert!(stderr.contains(&line), "{stderr}");
}

#[test]
fn forked_child_that_profiles_itself_has_a_file_of_its_own() {
    isolated(|| {
        let folder = Folder::new();
        let file = folder.0.join("out.json");
        let mut command = command("fork, and the child profiles itself");
        let ended = run(command.envs(variables(&file)), |_| {});
        assert_eq!(ended.status.code(), Some(6), "{ended:?}");
        assert_two_files(&folder, &file, &ended.stderr);
        assert_whole(&std::fs::read(&file).expect("text"));
    });
}

#[test]
fn started_program_and_its_parent_do_not_replace_each_others_files() {
    isolated(|| {
        // A process with one thread marks the file as its own. Otherwise the one that ends last
        // steps aside, which is the parent.
        for (mut command, reason) in [
            (
                command_of(ONE_THREAD, "start a program"),
                "which started this one",
            ),
            (
                command("start a program"),
                "was written while this process ran",
            ),
        ] {
            let folder = Folder::new();
            let file = folder.0.join("out.json");
            // An older file is replaced.
            std::fs::write(&file, "old").expect("written");
            let ended = run(command.envs(variables(&file)), |_| {});
            assert_eq!(ended.status.code(), Some(6), "{ended:?}");
            assert_two_files(&folder, &file, &ended.stderr);
            for file in folder.files() {
                assert_whole(&std::fs::read(&file).expect("text"));
            }
            assert!(ended.stderr.contains(reason), "{ended:?}");
        }
    });
}

#[test]
fn file_that_another_process_writes_meanwhile_is_kept() {
    isolated(|| {
        let folder = Folder::new();
        let file = folder.0.join("out.json");
        let mut command = command("wait");
        let ended = run(command.envs(variables(&file)), |_| {
            std::fs::write(&file, "of another process").expect("written");
        });
        assert!(ended.status.success(), "{ended:?}");
        assert_two_files(&folder, &file, &ended.stderr);
        assert_eq!(
            std::fs::read_to_string(&file).expect("text"),
            "of another process"
        );
        assert_eq!(ended.status.into_raw(), 0);
        assert_whole(&std::fs::read(&folder.files()[0]).expect("text"));
    });
}

#[test]
fn process_id_in_the_name_gives_each_process_its_file() {
    isolated(|| {
        let folder = Folder::new();
        let file = folder.0.join("out-%p.json");
        let mut command = command("start a program");
        let ended = run(command.envs(variables(&file)), |_| {});
        assert_eq!(ended.status.code(), Some(6), "{ended:?}");
        assert_eq!(folder.files().len(), 2, "{ended:?}");
        assert!(!ended.stderr.contains("because"), "{ended:?}");
    });
}
