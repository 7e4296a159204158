//! Warnings that a profile says less than its reader may think: in the report, in the profile, and
//! on standard error.

use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::variables::scratch_folder;
use crate::common::{self, Read, isolated, wait_until};
use gekkota::{Features, ProfilerSession, StartParams};

const ROLE: &str = "GEKKOTA_TEST_ROLE";

#[test]
#[ignore = "runs only as a child of another test"]
fn role_of_the_warned_child() {
    if std::env::var(ROLE).is_ok_and(|role| role == "warned") {
        let work = || {
            let _profiler = gekkota::AutoProfilerInit::new();
            gekkota::register_thread("warned");
        };
        std::thread::spawn(work).join().expect("no panic");
    }
}

fn run(program: &Path, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    let arguments = [
        "environment::warnings::role_of_the",
        "--test-threads=1",
        "--include-ignored",
        "--nocapture",
    ];
    let output = command
        .args(arguments)
        .env(ROLE, "warned")
        .env("MOZ_PROFILER_STARTUP", "1")
        .envs(variables.iter().copied())
        .output()
        .expect("the child");
    assert!(output.status.success(), "{output:?}");
    output
}

fn own_path() -> PathBuf {
    std::env::current_exe().expect("path")
}

/// Returns the text of the warning with this name in `meta.warnings`, which the viewer's information
/// about the profile has, too.
fn warning(read: &Read, name: &str) -> Option<String> {
    let text = |warning: &Value| warning["text"].as_str().expect("a text").to_owned();
    let meta = &read.0["meta"];
    let warnings = meta["warnings"].as_array().expect("a list");
    let found = warnings.iter().find(|warning| warning["name"] == name);
    let found = found.map(text)?;
    let section = &meta["extra"][0];
    assert_eq!(section["label"], "Warnings");
    let entries = section["entries"].as_array().expect("a list");
    let shown = entries.iter().find(|entry| entry["label"] == name);
    assert_eq!(shown.expect("it is shown")["value"], found.as_str());
    Some(found)
}

/// Runs a child with these variables, and asserts that the warning appears once in each of the
/// three places, with all the parts.
fn assert_told(program: &Path, variables: &[(&str, &str)], name: &str, parts: &[&str]) {
    let folder = scratch_folder(&format!("warnings-{name}"));
    let file = folder.join("p.json");
    let saved = ("MOZ_PROFILER_SHUTDOWN", file.to_str().expect("UTF-8"));
    let with_file = run(program, &[variables, &[saved]].concat());
    let read = Read::from_text(&std::fs::read(&file).expect("the profile"));
    let text = warning(&read, name).unwrap_or_else(|| panic!("{}", read.0["meta"]["warnings"]));
    for part in parts {
        assert!(text.contains(part), "no {part} in {text}");
    }
    let stderr = String::from_utf8_lossy(&with_file.stderr).into_owned();
    assert_eq!(stderr.matches(parts[0]).count(), 1, "{stderr}");
    // The report of the same program.
    let reported = run(
        program,
        &[variables, &[("MOZ_PROFILER_REPORT", "1")]].concat(),
    );
    let stderr = String::from_utf8_lossy(&reported.stderr).into_owned();
    let report = &stderr[stderr.find("# profile").expect("a report")..];
    let lines = report.lines().filter(|line| line.contains(parts[0]));
    let lines: Vec<&str> = lines.collect();
    assert!(
        matches!(&lines[..], [line] if line.starts_with("warning ")),
        "{stderr}"
    );
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn filter_without_thread_is_told_in_three_places() {
    isolated(|| {
        assert_told(
            &own_path(),
            &[("MOZ_PROFILER_STARTUP_FILTERS", "warmed")],
            "filters",
            &["the filters \"warmed\" selected no thread", "warned"],
        );
    });
}

#[test]
fn feature_that_is_not_available_is_told_in_three_places() {
    isolated(|| {
        let features = "default,audiocallbacktracing";
        assert_told(
            &own_path(),
            &[("MOZ_PROFILER_STARTUP_FEATURES", features)],
            "features",
            &["the features audiocallbacktracing record nothing here"],
        );
        let by_default = ProfilerSession::start(StartParams::default()).expect("start");
        let read = Read::from_profile(&by_default.finish().expect("a profile"));
        assert_eq!(warning(&read, "features"), None);
        let chosen = StartParams::default().features(Features::STACK_WALK | Features::JAVA);
        let session = ProfilerSession::start(chosen).expect("start");
        let read = Read::from_profile(&session.finish().expect("a profile"));
        let text = warning(&read, "features").expect("a warning");
        assert!(text.contains("java"), "{text}");
    });
}

/// Makes a copy of this program without its table of sections, so that it has neither symbols nor
/// debug information, as a stripped program.
fn stripped_copy(folder: &Path) -> PathBuf {
    let copy = folder.join("stripped");
    std::fs::copy(own_path(), &copy).expect("a copy");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .open(&copy)
        .expect("the copy");
    // `e_shoff`; `e_shentsize`, `e_shnum` and `e_shstrndx`.
    for (offset, bytes) in [(0x28, 8), (0x3a, 6)] {
        file.seek(SeekFrom::Start(offset)).expect("its header");
        file.write_all(&[0; 8][..bytes]).expect("its header");
    }
    copy
}

#[test]
fn stripped_program_is_told_in_three_places() {
    isolated(|| {
        let folder = scratch_folder("stripped");
        let program = stripped_copy(&folder);
        let parts = [
            "have no names, because the file is stripped",
            "strip = false",
        ];
        assert_told(&program, &[], "stripped", &parts);
        std::fs::remove_dir_all(folder).expect("removed");
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let read = Read::from_profile(&session.finish().expect("a profile"));
        assert_eq!(warning(&read, "stripped"), None, "this program has names");
    });
}

/// Threads that work until they are dropped, without registering.
struct Workers(Vec<std::thread::JoinHandle<()>>);

static ARE_DONE: AtomicBool = AtomicBool::new(false);

impl Workers {
    fn start(name: &str, registered: bool) -> Self {
        ARE_DONE.store(false, Ordering::Relaxed);
        let start = |_| {
            let builder = std::thread::Builder::new().name(name.to_owned());
            let name = name.to_owned();
            let work = move || {
                let _registered = registered.then(|| gekkota::ThreadGuard::register(&name));
                while !ARE_DONE.load(Ordering::Relaxed) {
                    common::work(1000);
                }
            };
            builder.spawn(work).expect("a thread")
        };
        Self((0..4).map(start).collect())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        ARE_DONE.store(true, Ordering::Relaxed);
        for worker in self.0.drain(..) {
            worker.join().expect("no panic");
        }
    }
}

#[test]
fn cpu_time_of_other_threads_is_told_with_its_reason() {
    isolated(|| {
        let told = |session: &ProfilerSession| {
            let mut found = None;
            wait_until("the profile warns of missing CPU time", || {
                let profile = session.snapshot().expect("a profile");
                found = warning(&Read::from_profile(&profile), "coverage")
                    .map(|text| (text, format!("{:#}", profile.summary())));
                found.is_some()
            });
            found.expect("a warning")
        };
        let workers = Workers::start("foreign-pool", false);
        let params = StartParams::default();
        let features = params.features | Features::NO_UNREGISTERED_SAMPLING;
        let session = ProfilerSession::start(params.features(features)).expect("start");
        let (text, summary) = told(&session);
        assert!(
            text.contains("foreign-pool") && text.contains("omit the feature"),
            "{text}"
        );
        assert!(summary.contains("\nwarning   only "), "{summary}");
        drop((session, workers));

        let workers = Workers::start("filtered-pool", true);
        let params = StartParams::default().filters(["nothing else"]);
        let session = ProfilerSession::start(params).expect("start");
        let (text, _) = told(&session);
        assert!(
            text.contains("the filters do not select the threads")
                && text.contains("filtered-pool"),
            "{text}"
        );
        drop((session, workers));
    });
}
