//! Profiles a real workload and prints where its time went.
//!
//! `cargo run --release --example quick_start [-- PATH] [--seconds N] [--out FILE]`
//!
//! Several threads search and compress the text files of a folder; one more thread mostly sleeps.
//! You can open the profile in the [Firefox Profiler](https://profiler.firefox.com). This file has
//! all the code that a program needs to be profiled. `workload.rs` shows how a thread registers
//! itself, and how labels and markers say what it does.

mod arguments;
mod files;
mod names;
mod progress;
mod report;
mod workload;

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use arguments::{Command, Options};
use gekkota::process::profiler_set_version;
use gekkota::{AutoProfilerInit, ProfilerSession, StartParams};

fn main() -> ExitCode {
    // Do this first, and once: it registers the main thread. Dropping it shuts the profiler down.
    let _profiler = AutoProfilerInit::new();
    profiler_set_version(env!("CARGO_PKG_VERSION"));

    match arguments::parse(std::env::args_os().skip(1)) {
        Ok(Command::Help) => exit_code(report::print(arguments::USAGE), 1),
        Ok(Command::Profile(options)) => exit_code(profile(&options), 1),
        Err(problem) => exit_code(Err(problem.into()), 2),
    }
}

fn profile(options: &Options) -> Result<(), Box<dyn Error>> {
    // The default samples all registered threads every millisecond.
    let session = ProfilerSession::start(StartParams::default())?;
    let started = Instant::now();

    workload::run(&options.folder, options.time)?;

    let wall_time = started.elapsed();
    let profile = session.finish()?;
    profile.save(&options.out)?;
    report::print(&report::summary(&profile, wall_time, &options.out))
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
