//! What a process says about a profile that is lost, or has little in it.

use std::time::Duration;

use super::roles::{End, NOT_MAIN, ONE_THREAD, command, command_of, get_ready, run};
use crate::common::{Folder, isolated};

pub(super) const ENDS: &[(&str, End)] = &[
    ("unbound guard", |profiler| {
        // As `let _ = AutoProfilerInit::new();` does. That of the role was made a moment ago.
        drop(profiler);
        for _ in 0..3 {
            let _ = gekkota::AutoProfilerInit::new();
        }
        get_ready();
    }),
    ("short life", |profiler| {
        std::thread::sleep(Duration::from_millis(1));
        drop(profiler);
        get_ready();
    }),
];

const STARTED: (&str, &str) = ("MOZ_PROFILER_STARTUP", "1");

fn notices_of(end: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let ended = run(command(end).envs(variables.iter().copied()), |_| {});
    let notices = ended.notices().into_iter();
    notices.map(str::to_owned).collect()
}

fn count(notices: &[String], part: &str) -> usize {
    notices
        .iter()
        .filter(|notice| notice.contains(part))
        .count()
}

#[test]
fn guard_that_is_dropped_at_once_is_reported_if_the_variables_started() {
    isolated(|| {
        let part = "`let _ = …` drops it at once";
        let notices = notices_of("unbound guard", &[STARTED]);
        assert!(count(&notices, part) >= 1, "{notices:?}");
        assert_eq!(notices_of("unbound guard", &[]), [""; 0]);
    });
}

#[test]
fn program_that_takes_a_millisecond_is_not_told_to_bind_the_guard() {
    isolated(|| {
        let notices = notices_of("short life", &[STARTED]);
        assert_eq!(count(&notices, "let _"), 0, "{notices:?}");
    });
}

#[test]
fn guard_on_another_thread_is_reported_if_the_variables_started() {
    isolated(|| {
        let notices = |end: &str, variables: &[(&str, &str)]| {
            let ended = run(command(end).envs(variables.iter().copied()), |_| {});
            ended.stderr.matches(NOT_MAIN).count()
        };
        // libtest runs the child's code on a thread of its own, and a child of `fork` has one thread.
        assert_eq!(notices("exit", &[STARTED]), 1);
        assert_eq!(notices("exit", &[]), 0);
        let forked = command_of(ONE_THREAD, "exit").envs([STARTED]).output();
        let forked = String::from_utf8(forked.expect("a child").stderr).expect("text");
        assert!(forked.contains("the profile is lost unless"), "{forked}");
        assert!(!forked.contains(NOT_MAIN), "{forked}");
    });
}

#[test]
fn profile_that_somebody_takes_from_the_running_program_is_not_called_lost() {
    isolated(|| {
        let dumps = ("MOZ_PROFILER_DUMP_SIGNAL", "alrm");
        for end in ["return", "exit", "return without the guard's drop"] {
            let notices = notices_of(end, &[STARTED, dumps]);
            assert_eq!(count(&notices, "lost"), 0, "{notices:?}");
            let folder = Folder::new("notices");
            let file = folder.path("%p");
            let crash_file = ("MOZ_PROFILER_CRASH_FILE", file.to_str().expect("UTF-8"));
            let notices = notices_of(end, &[STARTED, crash_file]);
            assert_eq!(count(&notices, "lost"), 0, "{notices:?}");
            // The value names no signal, so there will be no dump.
            let notices = notices_of(end, &[STARTED, (dumps.0, "none")]);
            assert_eq!(
                count(&notices, "the profile is lost unless"),
                1,
                "{notices:?}"
            );
        }
    });
}

#[test]
fn session_that_runs_at_the_end_is_reported_once_if_the_variables_started() {
    isolated(|| {
        for end in ["return", "exit", "return without the guard's drop"] {
            // Without another way to save, the start says it.
            let notices = notices_of(end, &[STARTED]);
            assert_eq!(
                count(&notices, "the profile is lost unless"),
                1,
                "{notices:?}"
            );
            assert_eq!(
                count(&notices, "what it had not saved is lost"),
                0,
                "{notices:?}"
            );
            // A signal could have saved it.
            let notices = notices_of(end, &[STARTED, ("MOZ_PROFILER_SIGNALS", "1")]);
            assert_eq!(
                count(&notices, "what it had not saved is lost"),
                1,
                "{end}: {notices:?}"
            );
            assert_eq!(notices_of(end, &[]), [""; 0], "{end}");
        }
    });
}

#[test]
fn report_is_printed_at_an_end_without_a_file() {
    isolated(|| {
        let mut command = command("exit");
        command.envs([STARTED, ("MOZ_PROFILER_REPORT", "1")]);
        let ended = run(&mut command, |_| {});
        assert_eq!(ended.status.code(), Some(7), "{ended:?}");
        assert_eq!(ended.stderr.matches("# profile\n").count(), 1, "{ended:?}");
    });
}
