//! Converts a profile of gekkota or Firefox to another format.
//!
//! ```text
//! cargo run --release --features formats --example convert -- PROFILE [--to FORMAT] [--thread NAME] [--out FILE]
//! cargo run --release --features formats --example convert -- --diff BEFORE AFTER
//! ```
//!
//! `PROFILE` is a file in Gecko's format or in the Firefox Profiler's own, which may be compressed.
//! Without `--out`, the result goes to standard output. Without `--to`, the ending of `--out` selects
//! the format; without both, it is text. `--help` lists the formats. `--diff` prints what changed
//! between two profiles; the exit status is 1 if a function became slower.

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use gekkota::Profile;
use gekkota::profile::{Format, SampleWeight, SharedProgress, SnapshotOptions};
use lexopt::prelude::*;

const USAGE: &str =
    "usage: convert PROFILE [--to FORMAT] [--thread NAME] [--cpu] [--fold] [--out FILE]
       convert --diff BEFORE AFTER

PROFILE         a profile of gekkota (.json or .processed.json) or Firefox; it may
                be compressed with gzip
--to FORMAT     the format; by default the one that the ending of FILE stands for,
                or text
--thread NAME   only the thread with this name or id; cpuprofile, js-self-profile
                and d3-flame-graph have one thread, and otherwise get the one that
                used the most CPU time
--cpu           count CPU time instead of samples; always so for text
--sources       embed the sources of the program's own crates, on the machine that
                built it; files newer than the program are left out (only from and
                to processed)
--fold          leave out the outermost frames of Rust's and Tokio's runtimes;
                always so for text
--out FILE      the file to write; without it, or with `-`, standard output
--diff          print what changed between two profiles, by the share of each
                function in the CPU time; the options above have no effect

Exit status: 0; with --diff, 1 if a function surely became slower; 2 for an error.

formats:";

/// Maximum size of all sources that `--sources` embeds, in bytes.
const MAX_SOURCE_BYTES: usize = 16 << 20;

#[derive(Debug)]
struct Arguments {
    profiles: Vec<PathBuf>,
    compares: bool,
    format: Option<Format>,
    options: SnapshotOptions,
    out: Option<PathBuf>,
}

/// Returns `None` if the user asks for help.
fn arguments() -> Result<Option<Arguments>, Box<dyn Error>> {
    let mut parser = lexopt::Parser::from_env();
    let (mut profiles, mut compares) = (Vec::new(), false);
    let (mut format, mut out) = (None, None);
    let mut options = SnapshotOptions::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("to") => {
                let name = parser.value()?.string()?;
                let known = Format::from_name(&name);
                let unknown = || format!("--to: got {name:?}, expected one of {}", names());
                format = Some(known.ok_or_else(unknown)?);
            }
            Long("thread") => options = options.thread(parser.value()?.string()?),
            Long("cpu") => options = options.weight(SampleWeight::Cpu),
            Long("sources") => options = options.source_bytes(MAX_SOURCE_BYTES),
            Long("fold") => options = options.fold_runtime(true),
            Long("out") => out = Some(PathBuf::from(parser.value()?)).filter(|out| out != "-"),
            Long("diff") => compares = true,
            Short('h') | Long("help") => return Ok(None),
            Value(path) => profiles.push(PathBuf::from(path)),
            _ => return Err(argument.unexpected().into()),
        }
    }
    let expected = if compares { 2 } else { 1 };
    if profiles.len() != expected {
        return Err(format!("got {} profiles, expected {expected}", profiles.len()).into());
    }
    Ok(Some(Arguments {
        profiles,
        compares,
        format,
        options,
        out,
    }))
}

fn names() -> String {
    let names: Vec<_> = Format::all().map(Format::name).collect();
    names.join(", ")
}

/// Shows the progress on standard error while `work` runs, if that is a terminal.
fn with_progress<T>(progress: &SharedProgress, work: impl FnOnce() -> T) -> T {
    if !io::stderr().is_terminal() {
        return work();
    }
    let (done, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            // Short work shows nothing.
            let mut wait = Duration::from_millis(500);
            let mut has_shown = false;
            while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                eprint!("\r{:3.0} %", progress.proportion() * 100.0);
                (wait, has_shown) = (Duration::from_millis(100), true);
            }
            if has_shown {
                eprint!("\r     \r");
            }
        });
        let result = work();
        drop(done);
        result
    })
}

fn read(path: &Path) -> Result<Profile, Box<dyn Error>> {
    Profile::read(path).map_err(|error| {
        let (path, error) = (path.display().to_string(), error.to_string());
        match error.contains(&path) {
            true => error.into(),
            false => format!("{path}: {error}").into(),
        }
    })
}

fn convert(arguments: Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let profile = read(&arguments.profiles[0])?;
    if arguments.compares {
        let diff = profile.diff(&read(&arguments.profiles[1])?)?;
        print(diff.to_string().as_bytes())?;
        return Ok(ExitCode::from(u8::from(diff.is_regression())));
    }
    let progress = SharedProgress::new();
    let named = arguments.out.as_deref().and_then(Format::of_path);
    let mut options = arguments.options.progress(progress.clone());
    if arguments.format.or(named).unwrap_or(Format::Text) == Format::Text {
        // As `Profile::summary` does.
        options = options.weight(SampleWeight::Cpu).fold_runtime(true);
    }
    with_progress(&progress, || match (&arguments.out, arguments.format) {
        (Some(path), None) => profile.save_with(path, &options).map_err(Box::from),
        // The file's name stands for this format, too.
        (Some(path), format) if format == named => {
            profile.save_with(path, &options).map_err(Box::from)
        }
        (out, format) => {
            let format = format.unwrap_or(Format::Text);
            let mut text = Vec::new();
            profile.write_with(format, &mut text, &options)?;
            match out {
                Some(path) => std::fs::write(path, text)
                    .map_err(|error| format!("cannot write {}: {error}", path.display()).into()),
                None => print(&text),
            }
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Writes to standard output. A reader that has seen enough, such as `head`, is no error.
fn print(text: &[u8]) -> Result<(), Box<dyn Error>> {
    match io::stdout().lock().write_all(text) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

fn main() -> ExitCode {
    let result = arguments().and_then(|arguments| match arguments {
        Some(arguments) => convert(arguments),
        None => {
            println!("{USAGE} {}", names());
            if cfg!(not(feature = "protobuf")) {
                println!("pprof and perfetto need the feature: --features formats,protobuf");
            }
            Ok(ExitCode::SUCCESS)
        }
    });
    result.unwrap_or_else(|error| {
        eprintln!("convert: {error}");
        // 1 means a regression.
        ExitCode::from(2)
    })
}
