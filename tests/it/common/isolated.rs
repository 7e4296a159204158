//! Runs a test in a process of its own, so that it may use the process's profiler, signals, environment and working
//! directory as if it were alone.
//!
//! The parent runs this test binary again with the name of the one test. The child runs the test's body and tells how it
//! ended in a line of its standard output, which also proves that the body ran at all.

use std::any::type_name;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Set in the child, and inherited by the processes that the child starts.
const IS_CHILD: &str = "GEKKOTA_TEST_ISOLATED";
const RETURNED: &str = "\nisolated test: returned\n";
const PANICKED: &str = "\nisolated test: panicked: ";
/// Maximum time of a test: far above the slowest one on a busy machine, so that only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// Maximum wait for the end of the output after the test's end, in case a process that the test started still holds it.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the body of a test in a process of its own. To be called with a closure, directly in the test's function.
///
/// The child's output is printed, so that libtest shows it where the test fails or where `--nocapture` asks for it.
///
/// # Panics
/// If the body panics (with the body's message, for `should_panic`), if a signal kills the process, or at the timeout.
#[track_caller]
pub fn isolated<F: FnOnce()>(body: F) {
    if std::env::var_os(IS_CHILD).is_some() {
        return run_in_child(body);
    }
    let name = libtest_name(type_name::<F>());
    let mut child = command_of(name)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run {name} in a process of its own: {error}"));
    let stdout = collect(child.stdout.take().expect("it is piped"));
    let stderr = collect(child.stderr.take().expect("it is piped"));
    let status = wait(&mut child);
    let [stdout, stderr] = [stdout, stderr].map(|output| {
        let end = Instant::now() + OUTPUT_TIMEOUT;
        let mut text = Vec::new();
        while let Ok(part) = output.recv_timeout(end.saturating_duration_since(Instant::now())) {
            text.extend(part);
        }
        String::from_utf8_lossy(&text).into_owned()
    });
    print!("{stdout}");
    eprint!("{stderr}");
    let Some(status) = status else {
        panic!("test {name} did not end within {TIMEOUT:?} and was killed");
    };
    if let Some((_, rest)) = stdout.split_once(PANICKED) {
        panic!("{}", rest.lines().next().unwrap_or_default());
    }
    // A test that should panic and does not fails in the child already: that is for the parent's libtest to say.
    let has_returned = stdout.contains(RETURNED)
        && (status.success() || stdout.contains("test did not panic as expected"));
    assert!(has_returned, "test {name} {}", ending(status));
}

/// The arguments that have this binary run one test, alone.
fn command_of(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    // `--include-ignored`, since the parent was asked to run it.
    command
        .args([
            name,
            "--exact",
            "--nocapture",
            "--include-ignored",
            "--test-threads=1",
        ])
        .env(IS_CHILD, name);
    for (variable, _) in std::env::vars_os() {
        if variable.as_encoded_bytes().starts_with(b"MOZ_PROFILER_") {
            command.env_remove(variable);
        }
    }
    command
}

/// The name by which libtest knows the function or closure of this type: its path without the crate.
pub fn libtest_name(type_name: &'static str) -> &'static str {
    let path = type_name
        .split_once("::")
        .map_or(type_name, |(_, path)| path);
    path.split("::{{closure}}").next().unwrap_or(path)
}

fn run_in_child(body: impl FnOnce()) {
    let message = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(()) => return say(RETURNED),
        Err(panic) => match panic.downcast::<String>() {
            Ok(text) => *text,
            Err(panic) => panic
                .downcast_ref::<&str>()
                .map_or_else(|| "(no text)".to_owned(), |text| (*text).to_owned()),
        },
    };
    say(&format!("{PANICKED}{}\n", message.replace('\n', " ")));
    // Not by libtest, for which a test that should panic has passed.
    std::process::exit(101);
}

fn say(line: &str) {
    // A test may have closed it; the parent then misses the line.
    let _ = std::io::stdout().write_all(line.as_bytes());
    let _ = std::io::stdout().flush();
}

/// Reads from a thread of its own: a pipe that nobody reads would hold the child up.
fn collect(mut from: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut part = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut part) {
            if sender.send(part[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Waits for the child's end; at the timeout kills it and returns `None`.
fn wait(child: &mut Child) -> Option<ExitStatus> {
    let end = Instant::now() + TIMEOUT;
    loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            return Some(status);
        }
        if Instant::now() > end {
            child.kill().expect("it is our child");
            child.wait().expect("it is our child");
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn ending(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("was killed by {}", signal_name(signal)),
        None if status.success() => "did not run to its end".to_owned(),
        None => format!("ended with {status}"),
    }
}

fn signal_name(signal: i32) -> String {
    let names = [
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGALRM, "SIGALRM"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGPIPE, "SIGPIPE"),
        (libc::SIGPROF, "SIGPROF"),
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGSYS, "SIGSYS"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGTRAP, "SIGTRAP"),
        (libc::SIGUSR1, "SIGUSR1"),
        (libc::SIGUSR2, "SIGUSR2"),
    ];
    let known = names.iter().find(|(number, _)| *number == signal);
    known.map_or_else(
        || format!("signal {signal}"),
        |(_, name)| (*name).to_owned(),
    )
}
