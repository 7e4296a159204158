//! Runs a test in a process of its own. The test may change the process's profiler, signals,
//! environment and working directory.
//!
//! The parent runs this test binary again, with the name of the test. The child runs the test's body
//! and reports the result in a line of its standard output. That line also proves that the body ran.

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
/// Maximum time of a test. The slowest test on a busy machine takes far less, so only a hang reaches
/// it.
const TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// Maximum wait for the end of the output after the child has ended. A process that the test started
/// may still hold the pipe.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the body of a test in a process of its own. Call it with a closure, directly in the test's
/// function.
///
/// Prints the child's output, so libtest shows it if the test fails, and with `--nocapture`.
///
/// # Panics
/// If the body panics (with its message, which `should_panic` compares), if a signal kills the
/// process, or after [`TIMEOUT`].
#[track_caller]
pub fn isolated<F: FnOnce()>(body: F) {
    isolated_with(&[], body);
}

/// Like [`isolated`], with these environment variables in addition.
#[track_caller]
pub fn isolated_with<F: FnOnce()>(variables: &[(&str, &str)], body: F) {
    if std::env::var_os(IS_CHILD).is_some() {
        return run_in_child(body);
    }
    let name = libtest_name(type_name::<F>());
    let mut child = command_of(name)
        .envs(variables.iter().copied())
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
    // If a test should panic and does not, libtest fails it in the child. Here the body has returned,
    // and the parent's libtest reports the missing panic.
    let has_returned = stdout.contains(RETURNED)
        && (status.success() || stdout.contains("test did not panic as expected"));
    assert!(has_returned, "test {name} {}", ending(status));
}

/// Returns the command that runs one test of this binary.
fn command_of(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    // `--include-ignored`: the parent runs this test, so the child must not skip it.
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

/// Returns libtest's name of the function or closure with this type name: its path without the
/// crate.
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
    // Bypasses libtest, which would count the panic of a `should_panic` test as a success.
    std::process::exit(101);
}

fn say(line: &str) {
    // If the test has closed standard output, the parent finds no line and fails the test.
    let _ = std::io::stdout().write_all(line.as_bytes());
    let _ = std::io::stdout().flush();
}

/// Reads a pipe on a thread of its own, because a full pipe would block the child.
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

/// Waits until the child ends. After [`TIMEOUT`], kills it and returns `None`.
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
        (libc::SIGURG, "SIGURG"),
        (libc::SIGUSR1, "SIGUSR1"),
        (libc::SIGUSR2, "SIGUSR2"),
    ];
    let known = names.iter().find(|(number, _)| *number == signal);
    known.map_or_else(
        || format!("signal {signal}"),
        |(_, name)| (*name).to_owned(),
    )
}
