//! What a process says about a profile that is lost, or has little in it.

use super::roles::{End, command, get_ready, run};
use crate::common::isolated;

pub(super) const ENDS: &[(&str, End)] = &[
    ("unbound guard", |profiler| {
        // As `let _ = AutoProfilerInit::new();` does. That of the role was made long ago.
        drop(profiler);
        let _ = gekkota::AutoProfilerInit::new();
        get_ready();
    }),
    ("guard on another thread", |profiler| {
        drop(profiler);
        let other = || {
            let profiler = gekkota::AutoProfilerInit::new();
            get_ready();
            std::mem::forget(profiler);
        };
        std::thread::spawn(other).join().expect("the thread");
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
        let part = "drops it at once, expected `let _profiler = ";
        let notices = notices_of("unbound guard", &[STARTED]);
        assert!(count(&notices, part) >= 1, "{notices:?}");
        assert_eq!(notices_of("unbound guard", &[]), [""; 0]);
    });
}

#[test]
fn guard_on_another_thread_is_reported_if_the_variables_started() {
    isolated(|| {
        let part = "the main thread is not registered";
        let notices = notices_of("guard on another thread", &[STARTED]);
        assert_eq!(count(&notices, part), 1, "{notices:?}");
        assert_eq!(notices_of("guard on another thread", &[]), [""; 0]);
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
            assert_eq!(count(&notices, "its profile is lost"), 0, "{notices:?}");
            // A signal could have saved it.
            let notices = notices_of(end, &[STARTED, ("MOZ_PROFILER_SIGNALS", "1")]);
            assert_eq!(
                count(&notices, "its profile is lost"),
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
