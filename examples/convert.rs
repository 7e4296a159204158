//! Converts a profile of gekkota or Firefox to another format.
//!
//! ```text
//! cargo run --release --example convert -- PROFILE [--to FORMAT] [--thread NAME] [--out FILE]
//! ```
//!
//! `PROFILE` is a file in Gecko's format or in the Firefox Profiler's own, which may be compressed.
//! Without `--out`, the result goes to standard output. Without `--to`, the ending of `--out` selects
//! the format. `--help` lists the formats.

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use gekkota::Profile;
use gekkota::profile::{Format, SampleWeight, SharedProgress, SnapshotOptions};
use lexopt::prelude::*;

const USAGE: &str =
    "usage: convert PROFILE [--to FORMAT] [--thread NAME] [--cpu] [--fold] [--out FILE]

PROFILE         a profile of gekkota or Firefox; it may be compressed with gzip
--to FORMAT     the format; by default the one that the ending of FILE stands for
--thread NAME   only the thread with this name or id; a format for one thread
                otherwise gets the thread that used the most CPU time
--cpu           count CPU time instead of samples
--fold          leave out the outermost frames of Rust's and Tokio's runtimes
--out FILE      the file to write, instead of standard output

formats:";

#[derive(Debug)]
struct Arguments {
    profile: PathBuf,
    format: Option<Format>,
    options: SnapshotOptions,
    out: Option<PathBuf>,
}

/// Returns `None` if the user asks for help.
fn arguments() -> Result<Option<Arguments>, Box<dyn Error>> {
    let mut parser = lexopt::Parser::from_env();
    let (mut profile, mut format, mut out) = (None, None, None);
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
            Long("fold") => options = options.fold_runtime(true),
            Long("out") => out = Some(PathBuf::from(parser.value()?)),
            Short('h') | Long("help") => return Ok(None),
            Value(path) if profile.is_none() => profile = Some(PathBuf::from(path)),
            _ => return Err(argument.unexpected().into()),
        }
    }
    Ok(Some(Arguments {
        profile: profile.ok_or("got no profile, expected a file")?,
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
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Short work shows nothing.
            thread::sleep(Duration::from_millis(500));
            while !done.load(Ordering::Relaxed) {
                let percent = progress.proportion() * 100.0;
                eprint!("\r{percent:3.0} %");
                thread::sleep(Duration::from_millis(100));
            }
            eprint!("\r     \r");
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    })
}

fn convert(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let profile = Profile::read(&arguments.profile)?;
    let progress = SharedProgress::new();
    let options = arguments.options.progress(progress.clone());
    with_progress(&progress, || match (&arguments.out, arguments.format) {
        (Some(path), None) => profile.save_with(path, &options).map_err(Box::from),
        (Some(path), Some(format)) => {
            let mut file = io::BufWriter::new(std::fs::File::create(path)?);
            profile.write_with(format, &mut file, &options)?;
            Ok(file.flush()?)
        }
        (None, format) => {
            let format = format.ok_or("got neither --to nor --out, expected one of them")?;
            let mut out = io::stdout().lock();
            profile.write_with(format, &mut out, &options)?;
            Ok(out.flush()?)
        }
    })
}

fn main() -> ExitCode {
    let result = arguments().and_then(|arguments| match arguments {
        Some(arguments) => convert(arguments),
        None => {
            println!("{USAGE} {}", names());
            Ok(())
        }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("convert: {error}");
            ExitCode::FAILURE
        }
    }
}
