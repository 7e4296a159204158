//! A child process that ends in the way that a variable names, and its parent's checks.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read as _};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{self, Read};

const ROLE: &str = "GEKKOTA_TEST_END";
const READY: &str = "the child is ready";
/// A part of the notice of a process whose profiler is initialized on another thread.
pub(super) const NOT_MAIN: &str = "the main thread is not registered";
const COVERAGE: &str = "of the process's CPU time is in samples";
const THREAD: &str = "the child's thread";
const MARKER: &str = "before the end";

/// Ends a child. Takes the guard, so that it is dropped only if the function drops it.
pub(super) type End = fn(gekkota::AutoProfilerInit);

/// All ends, by name.
const ENDS: &[&[(&str, End)]] = &[
    super::exits::ENDS,
    super::signals::ENDS,
    super::families::ENDS,
    super::notices::ENDS,
];

/// Runs in a child process. It is a test, so that this executable can run it as a program of its
/// own.
#[test]
#[ignore = "runs only as a child of another test"]
fn role_of_the_ending_child() {
    let Ok(name) = std::env::var(ROLE) else {
        return;
    };
    end_as(&name);
}

/// The name of [`role_of_the_ending_child_with_one_thread`].
pub(super) const ONE_THREAD: &str = "ends::roles::role_of_the_ending_child_with_one_thread";

/// Works like [`role_of_the_ending_child`], in a child of `fork`. That has only one thread, which is
/// its main one, but libtest runs this test on a thread of its own.
#[test]
#[ignore = "runs only as a child of another test"]
fn role_of_the_ending_child_with_one_thread() {
    let Ok(name) = std::env::var(ROLE) else {
        return;
    };
    // SAFETY: glibc allows its allocator and its threads in the child.
    match unsafe { libc::fork() } {
        0 => {
            end_as(&name);
            std::process::exit(0);
        }
        child => {
            let mut status = 0;
            // SAFETY: the kernel writes to a local.
            unsafe { libc::waitpid(child, &mut status, 0) };
            std::process::exit(ExitStatus::from_raw(status).code().unwrap_or(-1));
        }
    }
}

fn end_as(name: &str) {
    allow_no_core_file();
    let find = |(known, end): &(&str, End)| (*known == name).then_some(*end);
    let end = ENDS.iter().copied().flatten().find_map(find);
    let end = end.unwrap_or_else(|| panic!("no end {name}"));
    let profiler = gekkota::AutoProfilerInit::new();
    register();
    end(profiler);
}

/// Registers the child's thread.
pub(super) fn register() {
    gekkota::register_thread(THREAD);
}

fn allow_no_core_file() {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel reads a local.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) };
}

/// Records something, and tells the parent that the end may come.
pub(super) fn get_ready() {
    /// Longer than the life of a guard that was not bound to a name.
    const LIFE: std::time::Duration = std::time::Duration::from_millis(10);
    std::thread::sleep(LIFE);
    common::mark(MARKER);
    println!("{READY}");
}

/// Works until the process ends.
pub(super) fn work_forever() -> ! {
    loop {
        common::work(1000);
    }
}

/// Waits until the parent closes the child's standard input.
pub(super) fn wait_for_parent() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Returns the command that runs this executable as a child with this end.
pub(super) fn command(end: &str) -> Command {
    command_of("ends::roles::role_of_the_ending_child", end)
}

/// Returns the command that runs a test of this executable as a child, with this end.
pub(super) fn command_of(test: &str, end: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("path"));
    command
        .args([
            test,
            "--exact",
            "--test-threads=1",
            "--include-ignored",
            "--nocapture",
        ])
        .env(ROLE, end)
        .env("MOZ_PROFILER_SYMBOLICATE", "0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let take_default_actions = || {
        // A shell ignores some of them for a job in the background.
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
            // SAFETY: async-signal-safe; installs no handler.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: the closure makes only async-signal-safe calls.
    unsafe { command.pre_exec(take_default_actions) };
    command
}

/// A child that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    #[expect(dead_code, reason = "printed if a test fails")]
    stdout: String,
    pub(super) stderr: String,
}

impl Ended {
    /// Returns the profiler's lines on standard error, without the one that says that libtest runs
    /// the child's code on another thread than the main one.
    pub(super) fn notices(&self) -> Vec<&str> {
        let lines = self.stderr.lines();
        let notices = lines.filter(|line| line.starts_with("gekkota: "));
        // A busy machine decides how much of a short run is in samples.
        let about_run = |line: &&str| !line.contains(NOT_MAIN) && !line.contains(COVERAGE);
        notices.filter(about_run).collect()
    }
}

/// Runs a child. Calls `act` once it is ready. Standard error is read unless the command leads it
/// elsewhere.
pub(super) fn run(command: &mut Command, act: impl FnOnce(&mut Child)) -> Ended {
    let mut child = command.spawn().expect("a child");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let errors = child.stderr.take();
    let errors = std::thread::spawn(move || {
        let mut text = Vec::new();
        let read = errors.map(|mut errors| errors.read_to_end(&mut text));
        read.transpose().map(|_| text)
    });
    let (mut stdout, mut line) = (String::new(), String::new());
    while !line.contains(READY)
        && output
            .read_line({
                line.clear();
                &mut line
            })
            .expect("text")
            > 0
    {
        stdout += &line;
    }
    act(&mut child);
    drop(child.stdin.take());
    output.read_to_string(&mut stdout).expect("text");
    let status = child.wait().expect("the child");
    let stderr = errors.join().expect("the thread").expect("text");
    let stderr = String::from_utf8_lossy(&stderr).into_owned();
    Ended {
        status,
        stdout,
        stderr,
    }
}

/// A folder that is removed when it is dropped.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("gekkota-ends-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("folder");
        Self(folder)
    }

    pub(super) fn files(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(&self.0).expect("folder");
        let mut files: Vec<_> = files.map(|file| file.expect("file").path()).collect();
        files.sort();
        files
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the variables that profile a child into this file.
pub(super) fn variables(file: &Path) -> [(&'static str, &OsStr); 2] {
    [
        ("MOZ_PROFILER_STARTUP", "1".as_ref()),
        ("MOZ_PROFILER_SHUTDOWN", file.as_ref()),
    ]
}

/// Asserts that the text is a whole profile with the marker of [`get_ready`].
#[track_caller]
pub(super) fn assert_whole(text: &[u8]) {
    let read = Read::from_text(text);
    assert!(read.0["meta"]["shutdownTime"].is_number());
    // The main thread keeps the name that it has.
    let threads = read.threads().iter().map(|thread| &thread["name"]);
    let threads = threads.filter(|name| *name == THREAD || *name == "GeckoMain");
    let markers = threads.flat_map(|name| read.markers(name.as_str().expect("a name")));
    let count = markers.filter(|marker| marker.0 == MARKER).count();
    assert_eq!(count, 1);
}

/// Runs a child with this end without and with the variables. Asserts that its status is the same,
/// and that the profile is there, whole and once. Returns the status.
#[track_caller]
pub(super) fn assert_saved(
    end: &str,
    prepare: impl Fn(&mut Command),
    act: impl Fn(&mut Child),
) -> ExitStatus {
    let folder = Folder::new();
    let mut plain = command(end);
    prepare(&mut plain);
    let plain = run(&mut plain, &act);
    assert_eq!(plain.notices(), [""; 0], "{plain:?}");
    let file = folder.0.join("out.json");
    let mut profiled = command(end);
    profiled.envs(variables(&file));
    prepare(&mut profiled);
    let profiled = run(&mut profiled, &act);
    assert_eq!(
        profiled.status.into_raw(),
        plain.status.into_raw(),
        "{plain:?} {profiled:?}"
    );
    assert_eq!(folder.files(), std::slice::from_ref(&file), "{profiled:?}");
    let notices = profiled.notices();
    let line = format!("gekkota: saved the profile as {}", file.display());
    assert_eq!(notices, [line], "{profiled:?}");
    assert_whole(&std::fs::read(&file).expect("text"));
    profiled.status
}
