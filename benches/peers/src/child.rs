//! Runs that a process of their own makes: this program again, with the name of a part of a measurement.
//!
//! What a profiler leaves behind, a handler, a timer, memory, is then gone before the next one's turn.

use std::error::Error;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use serde_json::Value;

/// What tells a child from a user's call.
pub(crate) const FLAG: &str = "--child";

/// Gets its arguments, and gives an answer that the parent understands.
type Part = fn(&[String]) -> Result<Value, Box<dyn Error>>;

const PARTS: &[(&str, Part)] = &[
    ("bytes_per_sample", crate::bytes_per_sample::run_part),
    ("capture", crate::capture::run_part),
    ("churn", crate::churn::run_part),
    ("hour", crate::hour::run_part),
    ("idle", crate::idle::run_part),
    ("idle_bytes", crate::idle_bytes::run_part),
    ("label", crate::label::run_part),
    ("marker", crate::marker::run_part),
    ("marker_off", crate::marker_off::run_part),
    ("marker_stack", crate::marker_stack::run_part),
    ("put", crate::put::run_part),
    ("snapshot_pause", crate::snapshot_pause::run_part),
    ("spawn", crate::spawn::run_part),
    ("slowdown", crate::slowdown::run_part),
    ("stall", crate::stall::run_part),
    ("start", crate::start::run_part),
    ("stream", crate::stream::run_part),
    ("tracing_layer", crate::tracing_layer::run_part),
];

/// No run takes nearly as long. A peer that waits for ever in its signal handler would otherwise take us along.
const LONGEST_RUN: Duration = Duration::from_secs(60);
/// But for these, in which there is no peer's handler, and a long recording.
const LONG_PARTS: [&str; 3] = ["hour", "snapshot_pause", "stream"];
const LONGEST_LONG_RUN: Duration = Duration::from_secs(900);

/// Runs a part in a process of its own, to its end.
pub(crate) fn run(part: &str, arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let output = Command::new(std::env::current_exe()?)
        .arg(FLAG)
        .arg(part)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!(
            "{part} {}: the process ended by {}",
            arguments.join(" "),
            output.status
        )
        .into());
    }
    // What was measured may have printed lines of its own before.
    let lines = output.stdout.trim_ascii_end();
    let answer = lines
        .rsplit(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    Ok(serde_json::from_slice(answer)?)
}

/// The child's side.
pub(crate) fn answer(arguments: &[String]) -> ExitCode {
    let found = arguments.split_first().and_then(|(name, rest)| {
        let (_, part) = PARTS.iter().find(|(part, _)| part == name)?;
        let longest = if LONG_PARTS.contains(&name.as_str()) {
            LONGEST_LONG_RUN
        } else {
            LONGEST_RUN
        };
        Some((part, longest, rest))
    });
    let Some((part, longest, rest)) = found else {
        eprintln!("peers: `{FLAG}` is for the program itself");
        return ExitCode::from(2);
    };
    let watchdog = std::thread::Builder::new().spawn(move || {
        std::thread::sleep(longest);
        eprintln!("peers: a run took more than {longest:?}");
        std::process::abort();
    });
    match watchdog.map_err(Into::into).and_then(|_| part(rest)) {
        Ok(value) => {
            println!("{value}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("peers: {}: {error}", arguments.join(" "));
            ExitCode::FAILURE
        }
    }
}
