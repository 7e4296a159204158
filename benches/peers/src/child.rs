//! Runs parts of a measurement in child processes: this program again, with the name of the part.
//!
//! Whatever a profiler leaves behind, such as a handler, a timer or memory, is gone before the next
//! one runs.

use std::error::Error;
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::memory::{self, Watched};

/// First argument of a child process.
pub(crate) const FLAG: &str = "--child";

/// Takes the part's arguments, and returns the figures for the parent process.
type Part = fn(&[String]) -> Result<Value, Box<dyn Error>>;

const PARTS: &[(&str, Part)] = &[
    ("alloc", crate::alloc::run_part),
    ("alloc_truth", crate::alloc_truth::run_part),
    ("always_on", crate::always_on::run_part),
    ("always_on_clients", crate::always_on::run_clients),
    ("bursts", crate::bursts_arms::run_part),
    ("bursts_busy", crate::bursts::be_busy),
    ("bytes_per_sample", crate::bytes_per_sample::run_part),
    ("capture", crate::capture::run_part),
    ("churn", crate::churn::run_part),
    ("crash_file", crate::crash_file::run_part),
    ("first_name", crate::first_name::run_part),
    ("formats", crate::formats::run_part),
    ("hour", crate::hour::run_part),
    ("idle", crate::idle::run_part),
    ("idle_bytes", crate::idle_bytes::run_part),
    ("context", crate::context::run_part),
    ("incident", crate::incident::run_part),
    ("label", crate::label::run_part),
    ("library_threads", crate::library_threads::run_part),
    ("marker", crate::marker::run_part),
    ("marker_off", crate::marker_off::run_part),
    ("marker_stack", crate::marker_stack::run_part),
    ("processes", crate::processes::run_part),
    ("push", crate::push::run_part),
    ("put", crate::put::run_part),
    ("short_threads", crate::short_threads::run_part),
    ("snapshot_pause", crate::snapshot_pause::run_part),
    ("spawn", crate::spawn::run_part),
    ("slowdown", crate::slowdown::run_part),
    ("stall", crate::stall::run_part),
    ("start", crate::start::run_part),
    ("stream", crate::stream::run_part),
    ("summary", crate::summary::run_part),
    ("symbolicate", crate::symbolicate::run_part),
    ("tick", crate::tick::run_part),
    ("tracing_layer", crate::tracing_layer::run_part),
    ("unregistered", crate::unregistered::run_part),
    ("waiting_tasks", crate::waiting_tasks::run_part),
    ("wide", crate::wide::run_part),
];

/// Maximum time of a run, far above what any takes: a peer that hangs in its signal handler must
/// not hang the parent.
const RUN_TIMEOUT: Duration = Duration::from_secs(60);
/// Parts with the longer timeout: they make long recordings.
const LONG_PARTS: [&str; 12] = [
    "alloc_truth",
    "first_name",
    "formats",
    "hour",
    "incident",
    "processes",
    "push",
    "short_threads",
    "snapshot_pause",
    "stream",
    "symbolicate",
    "wide",
];
const LONG_RUN_TIMEOUT: Duration = Duration::from_secs(900);

/// Runs a part in a child process, and returns its answer.
pub(crate) fn run(part: &str, arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let output = command(part, arguments)?.output()?;
    answer_in(part, arguments, &output)
}

/// Runs a part like [`run`], as the program of a command that runs one.
pub(crate) fn run_under(
    mut outer: Command,
    part: &str,
    arguments: &[String],
) -> Result<Value, Box<dyn Error>> {
    outer.arg(std::env::current_exe()?);
    let output = with_arguments(outer, part, arguments).output()?;
    answer_in(part, arguments, &output)
}

/// Runs a part like [`run`], with these environment variables.
pub(crate) fn run_with_variables(
    part: &str,
    arguments: &[String],
    variables: &[(&str, &std::ffi::OsStr)],
) -> Result<Value, Box<dyn Error>> {
    let mut command = command(part, arguments)?;
    let output = command.envs(variables.iter().copied()).output()?;
    answer_in(part, arguments, &output)
}

/// Runs a part like [`run`], and also returns the peak of the process's anonymous memory. The
/// answer must fit into a pipe, because it is only read at the end.
pub(crate) fn run_watched(
    part: &str,
    arguments: &[String],
) -> Result<(Value, Watched), Box<dyn Error>> {
    let mut child = command(part, arguments)?.stdout(Stdio::piped()).spawn()?;
    let watched = memory::watch(&mut child, LONG_RUN_TIMEOUT)?;
    let answer = answer_in(part, arguments, &child.wait_with_output()?)?;
    Ok((answer, watched))
}

/// Returns the command that runs a part.
pub(crate) fn command(part: &str, arguments: &[String]) -> Result<Command, Box<dyn Error>> {
    let program = Command::new(std::env::current_exe()?);
    Ok(with_arguments(program, part, arguments))
}

fn with_arguments(mut command: Command, part: &str, arguments: &[String]) -> Command {
    command
        .arg(FLAG)
        .arg(part)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    command
}

fn answer_in(part: &str, arguments: &[String], output: &Output) -> Result<Value, Box<dyn Error>> {
    if !output.status.success() {
        return Err(format!(
            "cannot run `{part} {}`: the process ended with {}",
            arguments.join(" "),
            output.status
        )
        .into());
    }
    // The measured code may have printed lines before the answer.
    let lines = output.stdout.trim_ascii_end();
    let answer = lines
        .rsplit(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    Ok(serde_json::from_slice(answer)?)
}

/// Runs the part in the child process, and prints the answer for the parent.
pub(crate) fn answer(arguments: &[String]) -> ExitCode {
    let found = arguments.split_first().and_then(|(name, rest)| {
        let (_, part) = PARTS.iter().find(|(part, _)| part == name)?;
        let timeout = if LONG_PARTS.contains(&name.as_str()) {
            LONG_RUN_TIMEOUT
        } else {
            RUN_TIMEOUT
        };
        Some((part, timeout, rest))
    });
    let Some((part, timeout, rest)) = found else {
        eprintln!("peers: cannot use `{FLAG}`: only the program itself passes it");
        return ExitCode::from(2);
    };
    let watchdog = std::thread::Builder::new().spawn(move || {
        std::thread::sleep(timeout);
        eprintln!("peers: aborting: a run took more than {timeout:?}");
        std::process::abort();
    });
    match watchdog.map_err(Into::into).and_then(|_| part(rest)) {
        Ok(value) => {
            println!("{value}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("peers: cannot run `{}`: {error}", arguments.join(" "));
            ExitCode::FAILURE
        }
    }
}
