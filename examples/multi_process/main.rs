//! Profiles a program of several processes: a parent and eight workers.
//!
//! ```text
//! cargo run --release --example multi_process [-- FILE]
//! ```
//!
//! Each worker searches and compresses a part of the quick start's input. Two of them end early.
//! One is killed, one aborts, and one is stopped, so that it does not answer. The profile of the
//! parent contains those of all workers that could send theirs, and says which one did not answer.
//!
//! A worker needs one line: [`AutoProfilerInit::new`] joins the session of the process that has
//! started it. The parent needs two: [`StartParams::children`], and [`profiler_command`] for each
//! worker.

#[path = "../quick_start/files.rs"]
mod files;
mod report;
mod work;

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use gekkota::process::{
    profiler_command, profiler_set_process_name, profiler_set_process_type,
    profiler_wait_for_children,
};
use gekkota::profile::SnapshotOptions;
use gekkota::{AutoProfilerInit, StartParams, profiler_start, profiler_stream_json};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const WORKER: &str = "--worker";
/// What each worker does at the end.
const ENDS: [&str; 8] = [
    "early",
    "early",
    "is killed",
    "aborts",
    "is stopped",
    "works",
    "works",
    "works",
];
const MAX_UNTIL_JOINED: Duration = Duration::from_secs(30);
const WORKING_TIME: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match &arguments[..] {
        [worker, number, folder] if worker == WORKER => run_worker(number, Path::new(folder)),
        [] => run_parent(Path::new("multi_process.profile.json")),
        [file] if !file.starts_with('-') => run_parent(Path::new(file)),
        _ => Err("expected [FILE]".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("multi_process: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_worker(number: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    // Joins the parent. When it is dropped, the parent gets the profile.
    let _profiler = AutoProfilerInit::new();
    profiler_set_process_name(&format!("worker {number}"), None);
    profiler_set_process_type("worker");
    let number: usize = number.parse()?;
    let end = *ENDS.get(number).ok_or("there is no such worker")?;
    // The parent closes the pipe once all workers have joined.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    let time = match end {
        "early" | "aborts" => WORKING_TIME / 4,
        _ => WORKING_TIME * 4,
    };
    work::run(folder, number, ENDS.len(), time);
    if end == "aborts" {
        std::process::abort();
    }
    Ok(())
}

fn run_parent(file: &Path) -> Result<(), Box<dyn Error>> {
    let _profiler = AutoProfilerInit::new();
    profiler_set_process_name("parent", None);
    profiler_start(StartParams::default().children(true))?;

    let folder = files::default_folder()?;
    let mut workers = Vec::new();
    for number in 0..ENDS.len() {
        workers.push(spawn(number, &folder)?);
    }
    let begin = Instant::now();
    while profiler_wait_for_children(MAX_UNTIL_JOINED) < ENDS.len() {
        if begin.elapsed() > MAX_UNTIL_JOINED {
            return Err("not all workers have joined".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // Lets all of them begin.
    workers
        .iter_mut()
        .for_each(|worker| drop(worker.stdin.take()));
    work::wait(WORKING_TIME);

    let signal_of = |end| match end {
        "is killed" => Some(Signal::SIGKILL),
        "is stopped" => Some(Signal::SIGSTOP),
        _ => None,
    };
    for (worker, end) in workers.iter().zip(ENDS) {
        if let Some(signal) = signal_of(end) {
            kill(pid_of(worker), signal)?;
        }
    }
    // On a busy machine, the kernel may take seconds to remove an ended process from `/proc`.
    for (worker, end) in workers.iter_mut().zip(ENDS) {
        if matches!(end, "early" | "aborts" | "is killed") {
            worker.wait()?;
        }
    }

    save(file)?;
    for (worker, end) in workers.iter_mut().zip(ENDS) {
        if end == "is stopped" {
            kill(pid_of(worker), Signal::SIGCONT)?;
        }
        // Ignores an error: it may have ended by itself.
        let _ = kill(pid_of(worker), Signal::SIGTERM);
        worker.wait()?;
    }
    print!("{}", report::of_file(file)?);
    println!(
        "saved as {}; drag that file onto https://profiler.firefox.com",
        file.display()
    );
    Ok(())
}

/// Saves the profile. On a busy machine, a worker that is well may be silent for the default of one
/// second.
fn save(file: &Path) -> Result<(), Box<dyn Error>> {
    const CHILD_TIMEOUT: Duration = Duration::from_secs(4);
    let options = SnapshotOptions::default().child_timeout(CHILD_TIMEOUT);
    let mut out = BufWriter::new(File::create(file)?);
    profiler_stream_json(&mut out, &options)?;
    Ok(out.flush()?)
}

fn spawn(number: usize, folder: &Path) -> Result<Child, Box<dyn Error>> {
    let program: PathBuf = std::env::current_exe()?;
    let mut command = Command::new(program);
    command
        .args([WORKER, &number.to_string()])
        .arg(folder)
        .stdin(Stdio::piped());
    Ok(profiler_command(&mut command).spawn()?)
}

fn pid_of(worker: &Child) -> Pid {
    Pid::from_raw(worker.id() as i32)
}
