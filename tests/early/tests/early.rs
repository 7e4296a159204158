//! The profiler starts before `main`, and `profiler_init` takes its session over.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use common::{AFTER_END, BEFORE_MAIN, ENOUGH, FILE, IN_MAIN, NO_BASE, ROLE, Read, TOO_EARLY};

const PROGRAM: &str = env!("CARGO_BIN_EXE_early");
const IS_ACTIVE: &str = "active at the beginning of main: true\n";
const IS_INACTIVE: &str = "active at the beginning of main: false\n";
const STARTS: [(&str, &str); 1] = [("MOZ_PROFILER_STARTUP", "1")];

/// A folder that is removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("gekkota-early-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn files(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(&self.0).expect("a folder");
        let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
        files.sort();
        files
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn command_of(program: &Path, role: &str) -> Command {
    let mut command = Command::new(program);
    for (variable, _) in std::env::vars_os() {
        if variable.as_encoded_bytes().starts_with(b"MOZ_PROFILER_") {
            command.env_remove(variable);
        }
    }
    command.env(ROLE, role).env("MOZ_PROFILER_SYMBOLICATE", "0");
    // This process may have been started with ignored signals, as `nohup` does.
    let reset_signals = || {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            // SAFETY: changes the action of a signal, which has no handler.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: the closure makes only async-signal-safe calls.
    unsafe { command.pre_exec(reset_signals) };
    command
}

fn command(role: &str) -> Command {
    command_of(Path::new(PROGRAM), role)
}

#[track_caller]
fn run(command: &mut Command) -> (String, String) {
    let output = command.output().expect("the program");
    assert!(output.status.success(), "{output:?}");
    texts(&output)
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn read(file: &Path) -> Read {
    Read::from_text(&fs::read(file).expect("the profile"))
}

/// Returns the command for a program whose profile has names of functions.
fn command_with_names(role: &str) -> Command {
    let mut command = command(role);
    command.env_remove("MOZ_PROFILER_SYMBOLICATE");
    command
}

/// Asserts that the profiler's only notice says where the profile is. A busy machine decides how much
/// of a short run is in samples.
#[track_caller]
fn assert_only_saved(notices: &str, file: &Path) {
    let lines = notices.lines();
    let lines: Vec<_> = lines
        .filter(|line| !line.contains("CPU time is in samples"))
        .collect();
    assert_eq!(
        lines,
        [format!("gekkota: saved the profile as {}", file.display())]
    );
}

#[test]
fn base_profiler_hand_off_loses_nothing() {
    let folder = Folder::new();
    let file = folder.file("out.json");
    let (stdout, notices) = run(command_with_names("hand-over")
        .envs(STARTS)
        .env("MOZ_PROFILER_SHUTDOWN", &file));
    assert_eq!(stdout, IS_ACTIVE);
    assert_only_saved(&notices, &file);
    assert_eq!(folder.files(), std::slice::from_ref(&file));

    let read = read(&file);
    let counts = [TOO_EARLY, BEFORE_MAIN, IN_MAIN, AFTER_END].map(|name| read.markers_named(name));
    assert_eq!(counts, [0, 1, 1, 0]);
    for function in ["work_before_main", "work_in_main"] {
        let samples = read.samples_in(function);
        assert!(samples >= ENOUGH, "{samples} samples in {function}");
    }
    for lost in [
        "dropped_samples",
        "ticks_without_memory",
        "handler_replacements",
    ] {
        assert_eq!(read.count(lost), 0, "{lost}");
    }
    assert!(read.0["meta"]["shutdownTime"].is_number());
}

#[test]
fn program_that_never_initializes_is_profiled_and_saved() {
    let folder = Folder::new();
    // The program changes its folder in `main`.
    let mut program = command_with_names("no init");
    program.current_dir(&folder.0).envs(STARTS);
    let (stdout, notices) = run(program.env("MOZ_PROFILER_SHUTDOWN", "out.json"));
    assert_eq!(stdout, IS_ACTIVE);
    let file = folder.file("out.json");
    assert_only_saved(&notices, &file);
    let read = read(&file);
    assert_eq!(
        [BEFORE_MAIN, IN_MAIN].map(|name| read.markers_named(name)),
        [1, 1]
    );
    assert!(read.samples_in("work_before_main") >= ENOUGH);

    // Nothing saves it, which is known only at the end.
    let (_, notices) = run(command("no init").envs(STARTS));
    let said = "the program ended while it was profiled";
    assert!(
        notices.lines().count() == 1 && notices.contains(said),
        "{notices}"
    );
}

#[test]
fn file_that_main_decides_has_the_data_from_before_main() {
    let folder = Folder::new();
    let file = folder.file("out.json");
    let (stdout, notices) = run(command_with_names("file in code")
        .envs(STARTS)
        .env(FILE, &file));
    assert_eq!(stdout, IS_ACTIVE);
    assert_only_saved(&notices, &file);
    let read = read(&file);
    assert_eq!(
        [BEFORE_MAIN, IN_MAIN].map(|name| read.markers_named(name)),
        [1, 1]
    );
    assert!(read.samples_in("work_before_main") >= ENOUGH);

    // The folder is missing, which the program says while there is time to create it.
    let missing = folder.file("missing/out.json");
    let (_, notices) = run(command("file in code").envs(STARTS).env(FILE, &missing));
    assert!(notices.contains("cannot be saved as"), "{notices}");
}

#[test]
fn nothing_happens_before_main_unless_the_variables_say_so() {
    let off: [&[(&str, &str)]; 3] = [
        &[("MOZ_PROFILER_HELP", "1")],
        &[("MOZ_PROFILER_STARTUP", "0"), ("MOZ_PROFILER_SIGNALS", "1")],
        &[("MOZ_PROFILER_STARTUP_INTERVAL", "1")],
    ];
    for variables in off {
        let (stdout, notices) = run(command("no profiler").envs(variables.iter().copied()));
        assert_eq!(
            (stdout.as_str(), notices.as_str()),
            (IS_INACTIVE, ""),
            "{variables:?}"
        );
    }
    // Gecko's variable leaves the start to `profiler_init`.
    let no_base = [STARTS[0], (NO_BASE, "1"), ("MOZ_PROFILER_REPORT", "0")];
    let (stdout, _) = run(command("init").envs(no_base));
    assert_eq!(
        stdout,
        format!(
            "{IS_INACTIVE}active after profiler_init: true\nchildren start in profiler_init, too\n"
        )
    );
}

#[test]
fn program_that_forbids_unsafe_code_starts_before_main() {
    let safe = Path::new(env!("CARGO_BIN_EXE_safe"));
    for (variables, expected) in [(&STARTS[..], IS_ACTIVE), (&[], IS_INACTIVE)] {
        let (stdout, _) = run(command_of(safe, "").envs(variables.iter().copied()));
        assert_eq!(stdout, expected);
    }
}

#[test]
fn signals_are_left_alone_until_the_program_initializes_the_profiler() {
    let folder = Folder::new();
    let file = folder.file("out.json");
    let (stdout, _) = run(command("handlers")
        .envs(STARTS)
        .env("MOZ_PROFILER_SHUTDOWN", &file));
    let free = "free before profiler_init: [true, true, true]\n";
    let taken = "free after profiler_init: [false, false, false]\n";
    assert_eq!(stdout, format!("{IS_ACTIVE}{free}{taken}"));
    assert_eq!(read(&file).markers_named(BEFORE_MAIN), 1);
}

#[test]
fn start_in_code_restarts_as_it_does_any_session() {
    let (_, notices) = run(command("start in code").envs(STARTS));
    let said = "drops what was recorded since before main";
    assert_eq!(notices.matches(said).count(), 1, "{notices}");
}

#[test]
fn bad_value_is_reported_once_and_the_program_continues() {
    let bad = [
        STARTS[0],
        ("MOZ_PROFILER_STARTUP_INTERVAL", "0"),
        ("MOZ_PROFILER_STRATUP", "1"),
    ];
    let (stdout, notices) = run(command("init").envs(bad));
    assert_eq!(
        stdout,
        format!("{IS_INACTIVE}active after profiler_init: false\n")
    );
    for said in [
        "cannot start the profiler",
        "unknown variable MOZ_PROFILER_STRATUP",
    ] {
        assert_eq!(notices.matches(said).count(), 1, "{notices}");
    }
}

#[test]
fn child_of_a_fork_before_main_has_a_session_and_a_file_of_its_own() {
    let folder = Folder::new();
    let file = folder.file("out.json");
    let (stdout, _) = run(command("fork")
        .envs(STARTS)
        .env("MOZ_PROFILER_SHUTDOWN", &file));
    let after = "active after profiler_init: true\n";
    assert_eq!(stdout, format!("{IS_INACTIVE}{after}{IS_ACTIVE}{after}"));
    let files = folder.files();
    let [of_child, of_parent] = &files[..] else {
        panic!("{files:?}");
    };
    assert_eq!(*of_parent, file);
    let counts = |read: Read| [BEFORE_MAIN, IN_MAIN].map(|name| read.markers_named(name));
    assert_eq!(counts(read(of_child)), [0, 1]);
    assert_eq!(counts(read(of_parent)), [1, 1]);
}

/// The standard library finds a signal stack, and gives the main thread none.
#[test]
fn overflow_of_the_main_threads_stack_is_reported_during_and_after_the_session() {
    let folder = Folder::new();
    let file = folder.file("out.json");
    let no_core_file = || {
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the kernel reads a local.
        unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) };
        Ok(())
    };
    for role in ["overflow", "overflow after the end"] {
        let mut program = command(role);
        // SAFETY: the closure makes only an async-signal-safe call.
        unsafe { program.pre_exec(no_core_file) };
        let output = program
            .envs(STARTS)
            .env("MOZ_PROFILER_SHUTDOWN", &file)
            .output();
        let output = output.expect("the program");
        let (_, errors) = texts(&output);
        assert_eq!(
            output.status.signal(),
            Some(libc::SIGABRT),
            "{role}: {output:?}"
        );
        assert!(errors.contains("overflowed its stack"), "{role}: {errors}");
        assert_eq!(read(&file).markers_named(BEFORE_MAIN), 1, "{role}");
        fs::remove_file(&file).expect("the profile");
    }
}

#[test]
fn files_of_the_profiler_do_not_become_standard_streams() {
    let close_streams = || {
        for stream in 0..3 {
            // SAFETY: the program is about to replace this one.
            unsafe { libc::close(stream) };
        }
        Ok(())
    };
    let mut program = command("streams");
    // SAFETY: the closure makes only async-signal-safe calls.
    unsafe { program.pre_exec(close_streams) };
    // The pipe of control by signals is open as long as the program runs.
    program.envs(STARTS).env("MOZ_PROFILER_SIGNALS", "1");
    let status = program.status().expect("the program");
    assert!(status.success(), "{status}");
}

#[test]
fn library_does_not_start_the_profiler_when_it_is_loaded() {
    let test = std::env::current_exe().expect("a path");
    // Cargo builds the library into the folder of the test's executable.
    let library = test.with_file_name("libearly_library.so");
    let expected = format!("{IS_ACTIVE}active in the library: false\n");
    let (stdout, _) = run(command("load").envs(STARTS).env(FILE, &library));
    assert_eq!(stdout, expected);
    let (stdout, _) = run(command("preloaded")
        .envs(STARTS)
        .env("LD_PRELOAD", &library));
    assert_eq!(stdout, expected);
}

#[test]
fn set_user_id_program_reads_no_variable() {
    const OWNER: u32 = 65534;
    const CALLER: u32 = 12345;
    let folder = Folder::new();
    let set_mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    };
    set_mode(&folder.0, 0o755);
    let program = folder.file("program");
    // Another process copies the file: a child that another test forks during the copy would keep
    // the file open for writing, and the kernel does not start such a program.
    let copied = Command::new("cp").arg(PROGRAM).arg(&program).status();
    assert!(copied.expect("cp").success());
    if std::os::unix::fs::chown(&program, Some(OWNER), Some(OWNER)).is_err() {
        println!("!!! SKIPPED: only the superuser can make a program of another user");
        return;
    }
    let start = |mode| {
        set_mode(&program, mode);
        let mut command = command_of(&program, "init");
        run(command
            .envs(STARTS)
            .env("MOZ_PROFILER_REPORT", "0")
            .gid(CALLER)
            .uid(CALLER))
    };
    assert!(
        start(0o755).0.starts_with(IS_ACTIVE),
        "the caller's own program obeys"
    );
    let (stdout, notices) = start(0o4755);
    if stdout.starts_with(IS_ACTIVE) {
        println!("!!! SKIPPED: the kernel ignores the set-user-id bit here");
        return;
    }
    assert_eq!(
        stdout,
        format!("{IS_INACTIVE}active after profiler_init: false\n")
    );
    assert_eq!(notices, "");
}
