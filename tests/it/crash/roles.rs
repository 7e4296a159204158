//! The child process that records something and dies.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use gekkota::counter::ProfilerCounter;
use gekkota::{
    Features, MarkerOptions, StartParams, add_marker, add_text_marker, add_untyped_marker,
    auto_profiler_label, gecko_profiler_category, marker_type, profiler_start, register_thread,
};

use crate::common::{self, Read, wait_until};

const ROLE: &str = "GEKKOTA_TEST_CRASH";
const FILE: &str = "GEKKOTA_TEST_CRASH_FILE";
const CAPACITY: &str = "GEKKOTA_TEST_CRASH_CAPACITY";
const READY: &str = "the child is ready";

/// Number of threads that record.
pub(super) const WORKERS: usize = 3;

pub(super) fn worker_name(worker: usize) -> String {
    format!("worker {worker}")
}

marker_type! {
    /// A typed marker with a text and numbers.
    pub(super) struct Step {
        number: u64 => "Number", Integer;
        text: String => "Text", String;
        share: f64 => "Share", Percentage;
        is_even: bool => "Even", String;
    }
    name = "CrashStep";
}

marker_type! {
    /// Another one, of which fields may be missing.
    pub(super) struct Parts {
        number: Option<u32> => "Number", Integer;
        names: Vec<String> => "Names", List;
        label: String => "Label", UniqueString;
    }
    name = "CrashParts";
}

static STEPS: ProfilerCounter = ProfilerCounter::new("steps", "Test", "Steps of the workers");

gekkota::profiler_categories! {
    Crash("Crashing", orange) { Other: "Other", Working: "Working" }
}

/// How a child ends, by name.
const ENDS: &[(&str, fn())] = &[
    ("kill", || {
        loop {
            std::thread::park();
        }
    }),
    ("abort", || std::process::abort()),
    ("stack overflow", || _ = overflow(1)),
    ("panic that cannot unwind", || {
        extern "C" fn panics() {
            panic!("on purpose");
        }
        panics();
    }),
    ("_exit", || {
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }),
    ("exec", || {
        let error = Command::new("/bin/true").exec();
        panic!("{error}");
    }),
    ("fault", || {
        // SAFETY: not at all: the address is not mapped.
        unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
    }),
    ("stop", || gekkota::profiler_stop()),
    ("shutdown", || gekkota::profiler_shutdown()),
    ("return", || {}),
    ("fork, and the child goes on", || {
        // SAFETY: glibc allows its allocator and its threads in the child.
        match unsafe { libc::fork() } {
            0 => {
                // The test waits until the pipes are closed.
                // SAFETY: closes descriptors that this process does not use any more.
                unsafe { (1..3).for_each(|number| _ = libc::close(number)) };
                for number in 0..1000 {
                    add(number, "of the child");
                }
                std::thread::sleep(std::time::Duration::from_secs(600));
                std::process::exit(0);
            }
            child => {
                println!("child {child}");
                // SAFETY: ends the process.
                unsafe { libc::_exit(0) };
            }
        }
    }),
];

#[expect(unconditional_recursion, reason = "the stack is to overflow")]
#[inline(never)]
fn overflow(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 64]);
    overflow(depth + 1) + frame[depth as usize % 64]
}

/// Adds the marker with this number, of a type that depends on it.
pub(super) fn add(number: u64, text: &str) {
    let options = MarkerOptions::default;
    let name = format!("m{number}");
    match number % 4 {
        0 => add_marker(
            &name,
            gecko_profiler_category!(Other),
            options(),
            Step {
                number,
                text: format!("{text} {number}"),
                share: number as f64 / 8.0,
                is_even: number.is_multiple_of(8),
            },
        ),
        1 => add_text_marker(
            &name,
            Crash::Working,
            options(),
            &format!("{text} {number}"),
        ),
        2 => add_untyped_marker(&name, gecko_profiler_category!(Other), options()),
        _ => add_marker(
            &name,
            gecko_profiler_category!(Other),
            options(),
            Parts {
                number: number.is_multiple_of(3).then_some(number as u32),
                names: (0..number % 5).map(|part| format!("part {part}")).collect(),
                label: format!("label {}", number % 7),
            },
        ),
    }
}

/// Runs in a child process. It is a test, so that this executable can run it as a program of its
/// own.
#[test]
#[ignore = "runs only as a child of another test"]
fn role_of_the_crashing_child() {
    let Ok(name) = std::env::var(ROLE) else {
        return;
    };
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel reads a local.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) };
    let capacity = std::env::var(CAPACITY).expect("a capacity");
    let mut params = StartParams::default()
        .capacity_bytes(capacity.parse().expect("a number"))
        .features(Features::default_set() | Features::STACK_WALK);
    if let Some(path) = std::env::var_os(FILE) {
        params = params.crash_file(path);
    }
    gekkota::profiler_init();
    gekkota::process::profiler_set_process_name("crashing", None);
    gekkota::process::profiler_set_version("1.2.3");
    profiler_start(params).expect("a session");
    for worker in 0..WORKERS {
        std::thread::spawn(move || work(worker));
    }
    let _ended = std::thread::spawn(|| {
        register_thread("ended thread");
        add(0, "ended");
    })
    .join();
    // Each worker has samples.
    let has_samples = || {
        let read = Read::of_running();
        (0..WORKERS).all(|worker| {
            let name = worker_name(worker);
            let exists = read.threads().iter().any(|thread| thread["name"] == *name);
            exists && read.samples(&name).len() > 3
        })
    };
    wait_until("each worker has samples", has_samples);
    println!("{READY}");
    let (_, end) = ENDS
        .iter()
        .find(|(known, _)| *known == name)
        .expect("an end");
    end();
    println!("the end was survived");
}

/// Adds markers, and reports each after it was added.
fn work(worker: usize) {
    register_thread(&worker_name(worker));
    auto_profiler_label!("a label of the worker", Other);
    let mut report = std::io::stdout();
    for number in 0.. {
        add(number, "step");
        STEPS.add(1);
        // A single write, so that reports do not mix.
        let line = format!("\nadded {worker} {number}\n");
        if report.write_all(line.as_bytes()).is_err() {
            return;
        }
        common::work(2000);
    }
}

/// A child that records.
pub(super) struct Recording {
    pub(super) child: Child,
    reports: std::thread::JoinHandle<Reports>,
}

/// What a child has said.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// For each worker, the number of its last marker that was added.
    pub(super) last: [Option<u64>; WORKERS],
    pub(super) lines: Vec<String>,
    pub(super) stderr: String,
}

pub(super) fn command(end: &str, capacity: u64, file: Option<&Path>) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("path"));
    command
        .args([
            "crash::roles::role_of_the_crashing_child",
            "--exact",
            "--test-threads=1",
            "--include-ignored",
            "--nocapture",
        ])
        .env(ROLE, end)
        .env(CAPACITY, capacity.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(file) = file {
        command.env(FILE, file);
    }
    command
}

/// Starts a child, and returns it when it is ready.
pub(super) fn start(command: &mut Command) -> Recording {
    let mut child = command.spawn().expect("a child");
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut errors = child.stderr.take().expect("a pipe");
    let (ready, is_ready) = std::sync::mpsc::channel();
    let errors = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = std::io::Read::read_to_end(&mut errors, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let reports = std::thread::spawn(move || {
        let mut reports = Reports::default();
        for line in output.lines().map_while(Result::ok) {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["added", worker, number] => {
                    let worker: usize = worker.parse().expect("a worker");
                    let number: u64 = number.parse().expect("a number");
                    reports.last[worker] = Some(number);
                }
                _ if line == READY => _ = ready.send(()),
                _ => reports.lines.push(line),
            }
        }
        drop(ready);
        reports.stderr = errors.join().expect("the child's errors");
        reports
    });
    // Also returns if the child ends.
    let _ = is_ready.recv_timeout(common::LONGEST_WAIT);
    Recording { child, reports }
}

impl Recording {
    /// Waits until the child has ended.
    pub(super) fn end(mut self) -> (std::process::ExitStatus, Reports) {
        let status = self.child.wait().expect("a child");
        (status, self.reports.join().expect("reports"))
    }
}
