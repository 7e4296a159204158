//! A program that asks in code for its profile at every end.

use std::path::Path;

use super::roles::{Ended, Folder, assert_whole, command_of, run};
use crate::common::isolated;

const FILE: &str = "GEKKOTA_TEST_FILE";

/// Runs in a child process.
#[test]
#[ignore = "runs only as a child of another test"]
fn role_that_asks_in_code() {
    let Ok(file) = std::env::var(FILE) else {
        return;
    };
    let _profiler = match std::env::var("GEKKOTA_TEST_END").as_deref() {
        Ok("builder") => gekkota::AutoProfilerInit::builder()
            .save_at_exit(&file)
            .init(),
        Ok("report") => gekkota::AutoProfilerInit::builder().report_at_exit().init(),
        _ => {
            let profiler = gekkota::AutoProfilerInit::new();
            gekkota::profiler_save_at_exit(&file).expect("it is ready");
            profiler
        }
    };
    gekkota::profiler_start(gekkota::StartParams::default()).expect("a session");
    super::roles::register();
    super::roles::get_ready();
    std::process::exit(4);
}

fn ended_with(way: &str, file: &Path, variables: &[(&str, &str)]) -> Ended {
    let mut command = command_of("ends::asked_in_code::role_that_asks_in_code", way);
    command.env(FILE, file).envs(variables.iter().copied());
    let ended = run(&mut command, |_| {});
    assert_eq!(ended.status.code(), Some(4), "{ended:?}");
    ended
}

#[test]
fn program_that_asks_in_code_saves_at_its_end() {
    isolated(|| {
        for way in ["builder", "function"] {
            let folder = Folder::new();
            let file = folder.0.join("out.json");
            let ended = ended_with(way, &file, &[]);
            assert_eq!(folder.files(), std::slice::from_ref(&file), "{ended:?}");
            assert_whole(&std::fs::read(&file).expect("text"));
        }
    });
}

#[test]
fn program_that_asks_in_code_for_a_report_prints_it_at_its_end() {
    isolated(|| {
        for (variables, is_printed) in [(&[][..], true), (&[("MOZ_PROFILER_REPORT", "0")], false)] {
            let folder = Folder::new();
            let ended = ended_with("report", &folder.0.join("out.json"), variables);
            assert!(folder.files().is_empty(), "{ended:?}");
            let has_report = ended.stderr.contains("\nsamples ");
            assert_eq!(has_report, is_printed, "{variables:?}: {ended:?}");
        }
    });
}

#[test]
fn variable_has_precedence_over_the_code() {
    isolated(|| {
        let folder = Folder::new();
        let file = folder.0.join("out.json");
        let other = folder.0.join("other.json");
        let named = [("MOZ_PROFILER_SHUTDOWN", other.to_str().expect("UTF-8"))];
        let ended = ended_with("builder", &file, &named);
        assert_eq!(folder.files(), [other], "{ended:?}");
        let none = Folder::new();
        let file = none.0.join("out.json");
        let ended = ended_with("builder", &file, &[("MOZ_PROFILER_SHUTDOWN", "")]);
        assert!(none.files().is_empty(), "{ended:?}");
    });
}
