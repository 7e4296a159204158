//! Runs parts of a measurement in child processes: this program again, with the name of the
//! measurement.
//!
//! Whatever a profiler leaves behind, such as a handler, a timer or memory, is gone before the next
//! one runs.

use std::fmt::Display;
use std::process::{Command, ExitCode, Output, Stdio};

use serde_json::Value;

use crate::memory::{self, Watched};
use crate::study::{Arguments, Fallible, Measurement};

/// First argument of a child process.
pub(crate) const FLAG: &str = "--child";

/// Runs a part in a child process, and returns its answer.
pub(crate) fn run(measurement: &str, arguments: &[&dyn Display]) -> Fallible<Value> {
    answer_of(command(measurement, arguments)?)
}

/// Runs a command that runs a part.
pub(crate) fn answer_of(mut command: Command) -> Fallible<Value> {
    let output = command.output()?;
    answer_in(&command, &output)
}

/// Runs a part like [`run`], and also returns the peak of the process's anonymous memory. The
/// answer must fit into a pipe, because it is only read at the end.
pub(crate) fn run_watched(
    measurement: &Measurement,
    arguments: &[&dyn Display],
) -> Fallible<(Value, Watched)> {
    let mut command = command(measurement.name, arguments)?;
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let watched = memory::watch(&mut child, measurement.timeout)?;
    let answer = answer_in(&command, &child.wait_with_output()?)?;
    Ok((answer, watched))
}

/// Returns the command that runs a part.
pub(crate) fn command(measurement: &str, arguments: &[&dyn Display]) -> Fallible<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    add_part(&mut command, measurement, arguments);
    Ok(command)
}

/// Adds the arguments that let this program run a part.
pub(crate) fn add_part(command: &mut Command, measurement: &str, arguments: &[&dyn Display]) {
    command
        .args([FLAG, measurement])
        .args(arguments.iter().map(|argument| argument.to_string()))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
}

fn answer_in(command: &Command, output: &Output) -> Fallible<Value> {
    if !output.status.success() {
        let arguments: Vec<_> = command.get_args().collect();
        let status = output.status;
        return Err(format!("cannot run {arguments:?}: the process ended with {status}").into());
    }
    // The measured code may have printed lines before the answer.
    let lines = output.stdout.trim_ascii_end();
    let answer = lines.rsplit(|byte| *byte == b'\n').next();
    Ok(serde_json::from_slice(answer.unwrap_or_default())?)
}

/// Runs the part of a measurement in the child process, and prints the answer for the parent.
pub(crate) fn answer(measurement: &'static Measurement, arguments: &[String]) -> ExitCode {
    let timeout = measurement.timeout;
    let watchdog = std::thread::Builder::new().spawn(move || {
        std::thread::sleep(timeout);
        eprintln!("peers: aborting: a run took more than {timeout:?}");
        std::process::abort();
    });
    let arguments = Arguments(arguments.to_vec());
    let answer = watchdog.map_err(Into::into);
    match answer.and_then(|_| (measurement.part)(&arguments)) {
        Ok(value) => {
            println!("{value}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!(
                "peers: cannot run {} {:?}: {error}",
                measurement.name, arguments.0
            );
            ExitCode::FAILURE
        }
    }
}
