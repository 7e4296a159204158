//! Environment variables profile a program that only calls `AutoProfilerInit::new()`.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{self, Read, isolated, wait_until};

const ROLE: &str = "GEKKOTA_TEST_ROLE";

const LABEL: &str = "label of the work";
static HAS_ENOUGH_SAMPLES: AtomicBool = AtomicBool::new(false);

/// Runs in a child process: prints a line, and works until it is sampled. It is a test, so that
/// this executable can run it as a program of its own.
#[test]
#[ignore = "runs only as a child of another test"]
fn role_of_the_child() {
    if std::env::var(ROLE).is_ok_and(|role| role == "child") {
        work_until_sampled();
    }
}

/// Initializes the profiler on another thread. If it is active, that thread works until it has more
/// than 20 samples with the label.
fn work_until_sampled() {
    let (begins, begun) = std::sync::mpsc::channel();
    let worker = std::thread::spawn(move || {
        let _profiler = gekkota::AutoProfilerInit::new();
        gekkota::register_thread("child-main");
        println!("active: {}", gekkota::profiler_is_active());
        common::mark("begins");
        gekkota::auto_profiler_label!("label of the work", Other);
        begins.send(()).expect("the receiver exists");
        while !HAS_ENOUGH_SAMPLES.load(Ordering::Relaxed) {
            common::work(1000);
        }
    });
    begun.recv().expect("the worker starts");
    if gekkota::profiler_is_active() {
        wait_until("the work is sampled", || {
            let samples = Read::of_running().samples("child-main");
            let has_label =
                |sample: &&common::Sample| sample.stack.iter().any(|frame| frame == LABEL);
            samples.iter().filter(has_label).count() > 20
        });
    }
    HAS_ENOUGH_SAMPLES.store(true, Ordering::Relaxed);
    worker.join().expect("the child's work");
}

/// Returns the command that runs this executable in the role that [`ROLE`] names.
fn command_of_child(variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("path"));
    command
        .args([
            "environment::variables::role_of_the",
            "--test-threads=1",
            "--include-ignored",
            "--nocapture",
        ])
        .env(ROLE, "child");
    command.envs(variables.iter().copied());
    command
}

fn child(variables: &[(&str, &str)]) -> Output {
    let output = command_of_child(variables).output().expect("the child");
    assert!(output.status.success(), "{output:?}");
    output
}

/// Returns the text, without the notice that the child initializes the profiler on another thread
/// than the main one.
fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let is_other = |line: &&str| !line.contains("the main thread is not registered");
    text.split_inclusive('\n').filter(is_other).collect()
}

pub(super) fn scratch_folder(name: &str) -> PathBuf {
    let folder =
        std::env::temp_dir().join(format!("gekkota-environment-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("folder");
    folder
}

#[test]
fn startup_and_shutdown_variables_profile_a_program_with_one_guard() {
    isolated(|| {
        let folder = scratch_folder("startup");
        let pattern = folder.join("out-%p.json");
        let output = child(&[
            ("MOZ_PROFILER_STARTUP", "1"),
            ("MOZ_PROFILER_SHUTDOWN", pattern.to_str().expect("UTF-8")),
        ]);
        assert!(text(&output.stdout).contains("active: true"), "{output:?}");
        let files: Vec<_> = std::fs::read_dir(&folder)
            .expect("folder")
            .map(|file| file.expect("file").path())
            .collect();
        assert_eq!(files.len(), 1, "{files:?}");
        let notices = text(&output.stderr);
        let path = files[0].to_str().expect("UTF-8");
        assert!(
            notices.lines().count() == 1
                && notices.contains("saved the profile as")
                && notices.contains(path),
            "{notices}"
        );
        let name = files[0]
            .file_name()
            .expect("name")
            .to_string_lossy()
            .into_owned();
        assert!(name.starts_with("out-") && !name.contains("%p"), "{name}");
        let read = Read::from_text(&std::fs::read(&files[0]).expect("text"));
        let meta = &read.0["meta"];
        assert!(meta["shutdownTime"].is_number());
        assert_eq!(meta["shutdownTime"], meta["profilingEndTime"]);
        assert!(read.samples("child-main").len() > 20);
        assert!(
            read.threads()
                .iter()
                .any(|thread| thread["name"] == "GeckoMain")
        );

        let zipped = folder.join("out.json.gz");
        child(&[
            ("MOZ_PROFILER_STARTUP", "1"),
            ("MOZ_PROFILER_SHUTDOWN", zipped.to_str().expect("UTF-8")),
        ]);
        let mut unzipped = Vec::new();
        let file = std::fs::File::open(&zipped).expect("the file");
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(file), &mut unzipped)
            .expect("gzip");
        Read::from_text(&unzipped);
        std::fs::remove_dir_all(folder).expect("removed");
    });
}

#[test]
fn empty_or_0_startup_variable_keeps_the_profiler_off() {
    isolated(|| {
        for value in ["", "0"] {
            let output = child(&[("MOZ_PROFILER_STARTUP", value)]);
            assert!(text(&output.stdout).contains("active: false"));
            assert_eq!(text(&output.stderr), "", "no notice without a request");
        }
    });
}

#[test]
fn invalid_value_is_reported_with_its_usage_and_the_program_continues() {
    isolated(|| {
        let output = child(&[
            ("MOZ_PROFILER_STARTUP", "1"),
            ("MOZ_PROFILER_STARTUP_INTERVAL", "0"),
            ("MOZ_PROFILER_STARTUP_DURATION", "soon"),
            ("MOZ_PROFILER_STARTUP_FEATURES", "cpu,nonsense"),
        ]);
        let notices = text(&output.stderr);
        for part in [
            "MOZ_PROFILER_STARTUP_INTERVAL: got \"0\" (out of range), expected:",
            "MOZ_PROFILER_STARTUP_INTERVAL=<a number of milliseconds",
            "MOZ_PROFILER_STARTUP_DURATION: got \"soon\" (not a number), expected:",
            "MOZ_PROFILER_STARTUP_FEATURES: unknown feature \"nonsense\", ignored",
            "MOZ_PROFILER_HELP=1 lists all",
        ] {
            assert!(notices.contains(part), "{part}: {notices}");
        }
        assert!(notices.lines().count() <= 10, "few lines: {notices}");
        assert!(text(&output.stdout).contains("active: false"));
    });
}

#[test]
fn filters_of_other_processes_keep_the_profiler_off_with_a_notice() {
    isolated(|| {
        let output = child(&[
            ("MOZ_PROFILER_STARTUP", "1"),
            ("MOZ_PROFILER_STARTUP_FILTERS", "pid:1"),
        ]);
        let notices = text(&output.stderr);
        assert!(
            notices.lines().count() == 1
                && notices.contains("FILTERS=pid:1 selects only other processes"),
            "{notices}"
        );
        assert!(text(&output.stdout).contains("active: false"));
    });
}

#[test]
fn unknown_variable_is_reported_with_the_nearest_name() {
    isolated(|| {
        let output = child(&[("MOZ_PROFILER_STRATUP", "1")]);
        let notices = text(&output.stderr);
        assert!(
            notices.contains("unknown variable MOZ_PROFILER_STRATUP, ignored"),
            "{notices}"
        );
        assert!(
            notices.contains("did you mean MOZ_PROFILER_STARTUP?"),
            "{notices}"
        );
    });
}

#[test]
fn session_that_no_variable_saves_is_reported() {
    isolated(|| {
        let notices = text(&child(&[("MOZ_PROFILER_STARTUP", "1")]).stderr);
        assert!(
            notices.lines().count() == 1 && notices.contains("MOZ_PROFILER_SHUTDOWN="),
            "{notices}"
        );
        let by_signal = [("MOZ_PROFILER_STARTUP", "1"), ("MOZ_PROFILER_SIGNALS", "1")];
        let notices = text(&child(&by_signal).stderr);
        assert!(
            notices.lines().count() == 1 && notices.contains("what it had not saved is lost"),
            "{notices}"
        );
        let off = text(&child(&[("MOZ_PROFILER_SHUTDOWN", "/nonexistent-folder/p.json")]).stderr);
        assert!(
            off.contains("not running") && off.contains("MOZ_PROFILER_STARTUP=1"),
            "{off}"
        );
    });
}

#[test]
fn empty_shutdown_variable_is_reported() {
    isolated(|| {
        for startup in ["1", "0"] {
            let variables = [
                ("MOZ_PROFILER_STARTUP", startup),
                ("MOZ_PROFILER_SHUTDOWN", ""),
            ];
            let notices = text(&child(&variables).stderr);
            assert!(
                notices.lines().count() == 1
                    && notices.contains("cannot save")
                    && notices.contains("MOZ_PROFILER_SHUTDOWN is empty, expected a path"),
                "{startup}: {notices}"
            );
        }
    });
}

#[test]
fn report_is_printed_to_standard_error_with_and_without_a_file() {
    isolated(|| {
        let folder = scratch_folder("report");
        let file = folder.join("p.json");
        let started = ("MOZ_PROFILER_STARTUP", "1");
        let report = ("MOZ_PROFILER_REPORT", "1");
        let saved = ("MOZ_PROFILER_SHUTDOWN", file.to_str().expect("UTF-8"));
        for variables in [&[started, report][..], &[started, report, saved]] {
            let notices = text(&child(variables).stderr);
            assert!(
                notices.contains("# profile\n") && notices.contains("child-main ("),
                "{notices}"
            );
            let is_saved = notices.contains("saved the profile as");
            assert_eq!(is_saved, variables.contains(&saved), "{notices}");
            assert!(!notices.contains("the profile is lost"), "{notices}");
        }
        assert!(file.is_file());
        std::fs::remove_dir_all(folder).expect("removed");
        let off = text(&child(&[report]).stderr);
        assert!(
            off.contains("cannot print a report: the profiler is not running"),
            "{off}"
        );
    });
}

#[test]
fn missing_folder_of_the_shutdown_file_is_named() {
    isolated(|| {
        let output = child(&[
            ("MOZ_PROFILER_STARTUP", "1"),
            ("MOZ_PROFILER_SHUTDOWN", "/nonexistent-folder/inner/p.json"),
        ]);
        let notices = text(&output.stderr);
        assert!(
            notices.contains("cannot save the profile as /nonexistent-folder/inner/p.json")
                && notices.contains("the folder /nonexistent-folder does not exist"),
            "{notices}"
        );
        assert!(
            notices.starts_with("gekkota: the profile cannot be saved as"),
            "a warning at the start: {notices}"
        );
        let folder = scratch_folder("is-a-folder");
        let variables = [("MOZ_PROFILER_SHUTDOWN", folder.to_str().expect("UTF-8"))];
        let notices = text(&child(&variables).stderr);
        assert!(
            notices.contains("it is a folder, expected the path of a file"),
            "{notices}"
        );
        std::fs::remove_dir_all(folder).expect("removed");
    });
}

#[test]
fn help_is_printed_and_the_program_continues() {
    isolated(|| {
        let output = child(&[("MOZ_PROFILER_HELP", "")]);
        let stdout = text(&output.stdout);
        assert!(
            stdout.contains("MOZ_PROFILER_STARTUP_FILTERS=") && stdout.contains("active: false"),
            "{stdout}"
        );
    });
}

#[test]
#[ignore = "runs only as a child of another test"]
fn role_of_the_forking_child() {
    if std::env::var(ROLE).is_ok_and(|role| role == "forking") {
        let (locked, is_locked) = std::sync::mpsc::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let holder = std::thread::spawn(move || {
            let _output = std::io::stdout().lock();
            locked.send(()).expect("the receiver exists");
            // `recv` returns an error once the sender is dropped.
            assert!(ends.recv().is_err());
        });
        is_locked.recv().expect("the thread has the lock");
        common::in_forked_child(|| {
            // Kills a child that waits for the lock.
            nix::unistd::alarm::set(240);
            gekkota::profiler_init();
            String::new()
        });
        drop(end);
        holder.join().expect("the holder's end");
    }
}

#[test]
fn help_is_printed_in_forked_child_while_parent_locks_stdout() {
    isolated(|| {
        let output = command_of_child(&[("MOZ_PROFILER_HELP", "")])
            .env(ROLE, "forking")
            .output();
        let output = output.expect("the child");
        assert!(output.status.success(), "{output:?}");
        assert_eq!(
            text(&output.stdout)
                .matches("Environment variables of the profiler:")
                .count(),
            1,
            "{output:?}"
        );
    });
}

#[test]
fn closed_standard_streams_do_not_stop_the_program() {
    isolated(|| {
        let mut command =
            command_of_child(&[("MOZ_PROFILER_HELP", ""), ("MOZ_PROFILER_STARTUP", "1")]);
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        command.stdout(std::process::Stdio::null()).stderr(writer);
        assert!(command.status().expect("the child").success());
    });
}

#[test]
fn misspelled_feature_is_reported_with_the_nearest_name() {
    isolated(|| {
        let output = child(&[
            ("MOZ_PROFILER_STARTUP", "1"),
            ("MOZ_PROFILER_REPORT", "1"),
            ("MOZ_PROFILER_STARTUP_FEATURES", "cpu, stackwak"),
        ]);
        let notices = text(&output.stderr);
        assert!(notices.starts_with(
            "gekkota: MOZ_PROFILER_STARTUP_FEATURES: unknown feature \"stackwak\", ignored; did you \
             mean \"stackwalk\"? MOZ_PROFILER_HELP=1 lists all features\n"
        ), "{notices}");
        assert!(text(&output.stdout).contains("active: true"), "{output:?}");
    });
}

#[test]
fn filter_without_thread_is_reported_by_a_notice_and_in_the_profile() {
    isolated(|| {
        let folder = scratch_folder("filters");
        let file = folder.join("p.json");
        let run = |filters: &str| {
            let output = child(&[
                ("MOZ_PROFILER_STARTUP", "1"),
                ("MOZ_PROFILER_SHUTDOWN", file.to_str().expect("UTF-8")),
                ("MOZ_PROFILER_SYMBOLICATE", "0"),
                ("MOZ_PROFILER_STARTUP_FILTERS", filters),
            ]);
            let read = Read::from_text(&std::fs::read(&file).expect("text"));
            let mut processes = read.0["profilingLog"].as_object().expect("a log").values();
            let log = processes.next().expect("this process's part").clone();
            (
                text(&output.stderr),
                log.get("filtersWithoutThread").cloned(),
            )
        };
        let (notices, reported) = run("child-mian, child, d-main , pid:1");
        assert!(
            notices.contains("the filters \"child-mian\" selected no thread"),
            "{notices}"
        );
        let (_, names) = notices
            .split_once("now there are: ")
            .unwrap_or_else(|| panic!("no names in {notices}"));
        assert!(names.contains("child-main"), "{names}");
        assert_eq!(reported, Some(serde_json::json!(["child-mian"])));
        let (notices, reported) = run("*, child-main");
        assert!(!notices.contains("selected no thread"), "{notices}");
        assert_eq!(reported, None);
        std::fs::remove_dir_all(folder).expect("removed");
    });
}

#[test]
#[ignore = "runs only as a child of another test"]
fn role_of_the_moving_child() {
    if std::env::var(ROLE).is_ok_and(|role| role == "moving") {
        let _profiler = gekkota::AutoProfilerInit::new();
        std::env::set_current_dir("/").expect("the root");
    }
}

#[test]
fn relative_shutdown_file_is_saved_in_the_folder_of_the_init() {
    isolated(|| {
        let folder = scratch_folder("relative");
        let output = command_of_child(&[
            ("MOZ_PROFILER_STARTUP", "1"),
            ("MOZ_PROFILER_SHUTDOWN", "p.json"),
            ("MOZ_PROFILER_SYMBOLICATE", "0"),
        ])
        .env(ROLE, "moving")
        .current_dir(&folder)
        .output()
        .expect("the child");
        assert!(output.status.success(), "{output:?}");
        assert!(folder.join("p.json").is_file(), "{output:?}");
        std::fs::remove_dir_all(folder).expect("removed");
    });
}

#[test]
#[ignore = "runs only as a child of another test"]
fn role_of_the_guarded_child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let record = |marker| {
        let session = gekkota::ProfilerSession::start(gekkota::StartParams::default());
        gekkota::register_thread("guarded");
        common::mark(marker);
        session.expect("a session")
    };
    if role == "guarded dropping" {
        let _profiler = gekkota::AutoProfilerInit::new();
        drop(record("of the first"));
        drop(record("of the last"));
    } else if role == "guarded finishing" {
        let _profiler = gekkota::AutoProfilerInit::new();
        let profile = record("of the last").finish().expect("a profile");
        drop(profile);
    } else if role == "guarded before another" {
        let _profiler = gekkota::AutoProfilerInit::new();
        drop(record("of the first"));
        gekkota::profiler_start(gekkota::StartParams::default()).expect("a start");
        common::mark("of the last");
    }
}

#[test]
fn shutdown_saves_the_running_session_or_the_last_finished_one() {
    isolated(|| {
        for role in [
            "guarded dropping",
            "guarded finishing",
            "guarded before another",
        ] {
            let variables = [
                ("MOZ_PROFILER_STARTUP", "0"),
                ("MOZ_PROFILER_SYMBOLICATE", "0"),
            ];
            let markers = saved_by(role, "guarded", &variables).markers("guarded");
            let names: Vec<_> = markers.iter().map(|marker| marker.0.as_str()).collect();
            assert!(
                names.contains(&"of the last") && !names.contains(&"of the first"),
                "{role}: {names:?}"
            );
        }
    });
}

/// Returns the profile that a child saves at its end with these variables.
fn saved(name: &str, variables: &[(&str, &str)]) -> Read {
    saved_by("child", name, variables)
}

fn saved_by(role: &str, name: &str, variables: &[(&str, &str)]) -> Read {
    let folder = scratch_folder(name);
    let file = folder.join("p.json");
    let always = [
        ("MOZ_PROFILER_STARTUP", "1"),
        ("MOZ_PROFILER_SHUTDOWN", file.to_str().expect("UTF-8")),
    ];
    let output = command_of_child(&[&always, variables].concat())
        .env(ROLE, role)
        .output();
    let output = output.expect("the child");
    assert!(output.status.success(), "{output:?}");
    let read = Read::from_text(&std::fs::read(&file).expect("text"));
    std::fs::remove_dir_all(folder).expect("removed");
    read
}

#[test]
fn settings_are_recorded_in_the_profile() {
    isolated(|| {
        let read = saved(
            "settings",
            &[
                ("MOZ_PROFILER_STARTUP_ENTRIES", "200MB"),
                ("MOZ_PROFILER_STARTUP_INTERVAL", "2.5"),
                ("MOZ_PROFILER_STARTUP_DURATION", "3600.5"),
                ("MOZ_PROFILER_STARTUP_FEATURES", "stackwalk,cpu"),
                ("MOZ_PROFILER_STARTUP_FILTERS", "CHILD,other"),
                ("MOZ_PROFILER_STARTUP_ACTIVE_TAB_ID", "18446744073709551615"),
                ("MOZ_PROFILER_SYMBOLICATE", "n"),
            ],
        );
        let expected = serde_json::json!({
            "features": ["stackwalk", "cpu"], "threads": ["CHILD", "other"], "interval": 2.5,
            "capacity": 256 << 20 >> 3, "duration": 3600.5, "activeTabID": u64::MAX,
        });
        assert_eq!(read.0["meta"]["configuration"], expected);
        assert_eq!(read.0["meta"]["presymbolicated"], serde_json::json!(false));
        let overhead = &read.0["profilerOverhead"];
        assert_eq!(overhead["samples"]["data"], serde_json::json!([]));
        assert!(!read.samples("child-main").is_empty());
    });
}

#[test]
fn overheads_of_each_tick_are_recorded() {
    isolated(|| {
        let read = saved("overheads", &[("MOZ_PROFILER_RECORD_OVERHEADS", "1")]);
        assert_eq!(read.0["meta"]["presymbolicated"], serde_json::json!(true));
        let overhead = &read.0["profilerOverhead"];
        let columns = serde_json::json!(
            {"time": 0, "locking": 1, "expiredMarkerCleaning": 2, "counters": 3, "threads": 4}
        );
        assert_eq!(overhead["samples"]["schema"], columns);
        let rows: Vec<Vec<f64>> =
            serde_json::from_value(overhead["samples"]["data"].clone()).expect("rows of numbers");
        assert!(rows.len() > 10, "{}", rows.len());
        assert!(
            rows.windows(2).all(|two| two[0][0] < two[1][0]),
            "rows are ordered by time"
        );
        assert!(
            rows.iter().all(|row| row.len() == 5 && row[4] > 0.0),
            "each tick spends time on threads"
        );
        let number = |name: &str| {
            overhead["statistics"][name]
                .as_f64()
                .unwrap_or_else(|| panic!("{name}"))
        };
        let sum: f64 = rows.iter().flat_map(|row| &row[1..]).sum();
        assert_eq!(number("samplingCount"), rows.len() as f64);
        assert!(
            (number("overheadDurations") - sum).abs() < 1.0,
            "{sum} against {overhead}"
        );
        let profiled_ms = rows[rows.len() - 1][0] - rows[0][0];
        assert!((number("profiledDuration") - profiled_ms * 1e3).abs() < 1.0);
        assert!((number("overheadPercentage") - sum / 1e3 / profiled_ms).abs() < 1e-4);
        for name in [
            "Interval", "Overhead", "Lockings", "Cleaning", "Counter", "Thread",
        ] {
            let [least, mean, most] =
                ["min", "mean", "max"].map(|prefix| number(&format!("{prefix}{name}")));
            assert!(
                least <= mean && mean <= most,
                "{name}: {least}, {mean}, {most}"
            );
        }
    });
}

#[test]
fn no_features_record_labels_and_innermost_addresses_and_markers() {
    isolated(|| {
        let bare = [
            ("MOZ_PROFILER_STARTUP_FEATURES", ""),
            ("MOZ_PROFILER_SYMBOLICATE", "0"),
        ];
        let read = saved("no-features", &bare);
        assert_eq!(
            read.0["meta"]["configuration"]["features"],
            serde_json::json!([])
        );
        let stacks: Vec<_> = read
            .samples("child-main")
            .into_iter()
            .map(|sample| sample.stack)
            .collect();
        let is_in_work = |stack: &&Vec<String>| stack.first().is_some_and(|frame| frame == LABEL);
        let in_work: Vec<_> = stacks.iter().filter(is_in_work).collect();
        assert!(in_work.len() > 20, "{stacks:?}");
        assert!(
            in_work
                .iter()
                .all(|stack| stack.len() == 2 && stack[1].starts_with("0x")),
            "{in_work:?}"
        );
        assert!(
            read.markers("child-main")
                .iter()
                .any(|marker| marker.0 == "begins")
        );
        assert!(
            saved("features", &bare[1..])
                .samples("child-main")
                .iter()
                .any(|sample| sample.stack.len() > 4)
        );
    });
}

#[test]
#[ignore = "runs only as a child of another test"]
fn role_of_the_pausing_child() {
    use gekkota::callback::SamplingState::{SamplingCompleted, SamplingPaused};
    if std::env::var(ROLE).is_ok_and(|role| role == "pausing") {
        let _profiler = gekkota::AutoProfilerInit::new();
        let loops = |expected| {
            for _ in 0..5 {
                assert_eq!(common::one_loop(), expected);
            }
        };
        let pauses: [[fn(); 2]; 2] = [
            [gekkota::profiler_pause, gekkota::profiler_resume],
            [
                gekkota::profiler_pause_sampling,
                gekkota::profiler_resume_sampling,
            ],
        ];
        loops(SamplingCompleted);
        for [pause, resume] in pauses {
            pause();
            loops(SamplingPaused);
            resume();
            loops(SamplingCompleted);
        }
    }
}

#[test]
fn pauses_have_no_overhead_rows() {
    isolated(|| {
        let read = saved_by(
            "pausing",
            "pauses",
            &[("MOZ_PROFILER_RECORD_OVERHEADS", "1")],
        );
        let rows = read.0["profilerOverhead"]["samples"]["data"]
            .as_array()
            .expect("rows");
        let times: Vec<_> = rows
            .iter()
            .map(|row| row[0].as_f64().expect("a time"))
            .collect();
        let mut after = 0.0;
        for range in read.0["pausedRanges"].as_array().expect("ranges") {
            let [start, end] =
                ["startTime", "endTime"].map(|end| range[end].as_f64().expect("a time"));
            assert!(
                times.iter().any(|time| (after..start).contains(time)),
                "{after} to {start}: {times:?}"
            );
            assert!(
                !times.iter().any(|time| start < *time && *time < end),
                "{start} to {end}: {times:?}"
            );
            after = end;
        }
        assert!(
            after > 0.0 && times.iter().any(|time| *time > after),
            "{after}: {times:?}"
        );
        assert_eq!(read.0["pausedRanges"].as_array().map(Vec::len), Some(2));
    });
}

/// Profiles itself, and starts another process with the variables for child processes. That process
/// prints its configuration.
#[test]
#[ignore = "runs only as a child of another test"]
fn role_of_the_parent() {
    if std::env::var(ROLE).is_ok_and(|role| role == "parent") {
        let _profiler = gekkota::AutoProfilerInit::new();
        let mut command = command_of_child(&[]);
        command
            .env(ROLE, "configuration")
            .envs(gekkota::process::profiler_env_vars_for_child_process());
        assert!(command.status().expect("the grandchild").success());
    }
}

#[test]
#[ignore = "runs only as a child of another test"]
fn role_of_the_configured_child() {
    if std::env::var(ROLE).is_ok_and(|role| role == "configuration") {
        let _profiler = gekkota::AutoProfilerInit::new();
        let profile = gekkota::profiler_get_profile().map(|text| Read::from_text(&text));
        let configuration = profile.map(|read| read.0["meta"]["configuration"].to_string());
        println!(
            "configuration: {}",
            configuration.unwrap_or_else(|| "off".to_owned())
        );
    }
}

#[test]
fn child_process_has_the_configuration_of_its_parent() {
    isolated(|| {
        let folder = scratch_folder("family");
        let pattern = folder.join("%p.json");
        let settings = [
            ("MOZ_PROFILER_STARTUP_ENTRIES", "1GiB"),
            ("MOZ_PROFILER_STARTUP_INTERVAL", "1.7"),
            ("MOZ_PROFILER_STARTUP_DURATION", "0.25"),
            ("MOZ_PROFILER_STARTUP_FEATURES", "cpu"),
            ("MOZ_PROFILER_STARTUP_FILTERS", "GeckoMain,worker"),
            ("MOZ_PROFILER_SHUTDOWN", pattern.to_str().expect("UTF-8")),
        ];
        let run = |startup: &str| {
            let mut command =
                command_of_child(&[&[("MOZ_PROFILER_STARTUP", startup)], &settings[..]].concat());
            let output = command.env(ROLE, "parent").output().expect("the parent");
            assert!(output.status.success(), "{output:?}");
            let stdout = text(&output.stdout);
            let line = stdout
                .lines()
                .find_map(|line| line.split_once("configuration: "))
                .expect("a line");
            // The parent chose that its child does not save, so the child does not report that.
            let notices = text(&output.stderr);
            assert!(!notices.contains("MOZ_PROFILER_SHUTDOWN"), "{notices}");
            line.1.to_owned()
        };
        let configuration: serde_json::Value = serde_json::from_str(&run("1")).expect("JSON");
        let expected = serde_json::json!({
            "features": ["cpu"], "threads": ["GeckoMain", "worker"], "interval": 1.7,
            "capacity": 1 << 27, "duration": 0.25, "activeTabID": 0,
        });
        assert_eq!(configuration, expected);
        let files = std::fs::read_dir(&folder).expect("folder").count();
        assert_eq!(files, 1, "only the parent saves a profile");
        assert_eq!(run("0"), "off");
        std::fs::remove_dir_all(folder).expect("removed");
    });
}
