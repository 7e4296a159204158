//! A program that only calls `AutoProfilerInit::new()` is profiled by the environment's variables.
#![cfg(has_profiler)]

mod common;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use common::Read;

const ROLE: &str = "GEKKOTA_TEST_ROLE";

/// What the child does: one line, and some work. A test by name, so that this executable can run it as a program of
/// its own.
#[test]
fn role_of_the_child() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    std::thread::spawn(|| {
        let _profiler = gekkota::AutoProfilerInit::new();
        gekkota::register_thread("child-main");
        println!("active: {}", gekkota::profiler_is_active());
        common::work_for_cpu(Duration::from_millis(100));
    })
    .join()
    .expect("the child's work");
}

fn child(variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("path"));
    command.args(["--exact", "role_of_the_child", "--nocapture"]).env(ROLE, "1");
    command.envs(variables.iter().copied());
    let output = command.output().expect("the child");
    assert!(output.status.success(), "{output:?}");
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn scratch_folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("gekkota-environment-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("folder");
    folder
}

#[test]
fn startup_and_shutdown_profile_a_program_of_one_line() {
    let folder = scratch_folder();
    let pattern = folder.join("out-%p.json");
    let output =
        child(&[("MOZ_PROFILER_STARTUP", "1"), ("MOZ_PROFILER_SHUTDOWN", pattern.to_str().expect("UTF-8"))]);
    assert!(text(&output.stdout).contains("active: true"), "{output:?}");
    let files: Vec<_> =
        std::fs::read_dir(&folder).expect("folder").map(|file| file.expect("file").path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let name = files[0].file_name().expect("name").to_string_lossy().into_owned();
    assert!(name.starts_with("out-") && !name.contains("%p"), "{name}");
    let read = Read::from_text(&std::fs::read(&files[0]).expect("text"));
    assert!(read.samples("child-main").len() > 20);
    assert!(read.threads().iter().any(|thread| thread["name"] == "GeckoMain"));

    let zipped = folder.join("out.json.gz");
    child(&[("MOZ_PROFILER_STARTUP", "1"), ("MOZ_PROFILER_SHUTDOWN", zipped.to_str().expect("UTF-8"))]);
    let mut unzipped = Vec::new();
    let file = std::fs::File::open(&zipped).expect("the file");
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(file), &mut unzipped).expect("gzip");
    Read::from_text(&unzipped);
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn it_is_off_without_the_variable() {
    for value in ["", "0"] {
        assert!(text(&child(&[("MOZ_PROFILER_STARTUP", value)]).stdout).contains("active: false"));
    }
}

#[test]
fn a_bad_value_is_told_with_the_usage_and_the_program_goes_on() {
    let output = child(&[("MOZ_PROFILER_STARTUP", "1"), ("MOZ_PROFILER_STARTUP_INTERVAL", "0")]);
    let told = text(&output.stderr);
    assert!(
        told.contains("MOZ_PROFILER_STARTUP_INTERVAL is \"0\"") && told.contains("accepted is"),
        "{told}"
    );
    assert!(told.contains("MOZ_PROFILER_SHUTDOWN="), "the usage follows: {told}");
    assert!(text(&output.stdout).contains("active: false"));
}

#[test]
fn a_shutdown_file_that_cannot_be_written_is_told() {
    let output =
        child(&[("MOZ_PROFILER_STARTUP", "1"), ("MOZ_PROFILER_SHUTDOWN", "/nonexistent-folder/p.json")]);
    let told = text(&output.stderr);
    assert!(told.contains("was not saved") && told.contains("/nonexistent-folder/p.json"), "{told}");
}

#[test]
fn help_is_printed_and_the_program_goes_on() {
    let output = child(&[("MOZ_PROFILER_HELP", "")]);
    let told = text(&output.stdout);
    assert!(told.contains("MOZ_PROFILER_STARTUP_FILTERS=") && told.contains("active: false"), "{told}");
}
