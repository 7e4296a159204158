//! Profiles a real workload and prints where its time went.
//!
//! `cargo run --release --example quick_start [-- PATH] [--seconds N] [--out FILE]`
//!
//! Several threads search and compress the text files of a folder; one more thread mostly sleeps.
//! You can open the profile in the [Firefox Profiler](https://profiler.firefox.com). This file has
//! all the code that a program needs to be profiled. `workload.rs` shows how labels and markers say
//! what a thread does.

mod arguments;
mod files;
mod progress;
mod workload;

use std::error::Error;
use std::io::{ErrorKind, Write, stdout};
use std::process::ExitCode;

use arguments::{Command, Options};
use gekkota::process::profiler_set_version;
use gekkota::profile::Format;
use gekkota::{AutoProfilerInit, ProfilerSession, StartParams};

fn main() -> ExitCode {
    // Do this first, and once: it registers the main thread. Dropping it shuts the profiler down.
    let _profiler = AutoProfilerInit::new();
    profiler_set_version(env!("CARGO_PKG_VERSION"));

    match arguments::parse(std::env::args_os().skip(1)) {
        Ok(Command::Help) => exit_code(print(arguments::USAGE), 1),
        Ok(Command::Profile(options)) => exit_code(profile(&options), 1),
        Err(problem) => exit_code(Err(problem.into()), 2),
    }
}

fn profile(options: &Options) -> Result<(), Box<dyn Error>> {
    // The default samples all threads every millisecond.
    let session = ProfilerSession::start(StartParams::default())?;

    workload::run(&options.folder, options.time)?;

    let profile = session.finish()?;
    profile.save(&options.out)?;
    let out = options.out.display();
    let viewer = match Format::of_path(&options.out) {
        Some(Format::Gecko | Format::Processed) => {
            "drag that file onto https://profiler.firefox.com"
        }
        _ => "the README lists what opens which format",
    };
    // In a terminal, the summary has its width and colors.
    print(&format!(
        "{}\nsaved as {out}; {viewer}\n",
        profile.summary()
    ))
}

/// Prints the text. A pipe whose reader has exited is not an error.
fn print(text: &str) -> Result<(), Box<dyn Error>> {
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn exit_code(result: Result<(), Box<dyn Error>>, failure: u8) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quick_start: {error}");
            ExitCode::from(failure)
        }
    }
}
