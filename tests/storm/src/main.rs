//! Everything that can disturb an in-process profiler, at once. Also checks what is left
//! afterwards.
//!
//! Run `cargo run --release --manifest-path tests/storm/Cargo.toml` in the root of the repository.
//! `STORM_SECONDS` sets the duration, by default a minute. Exit code 0 means that there are no
//! problems.

mod altstack;
mod backtraces;
mod blocked;
mod churn;
mod control;
mod coroutines;
mod crew;
mod forks;
mod gate;
mod labels;
mod library;
mod loader;
mod loops;
mod memory;
mod panics;
mod peer;
mod proof;
mod random;
mod reader;
mod recursion;
mod registers;
mod resources;
mod roster;
mod round;
mod settings;
mod spawning;
mod tally;
mod waits;
mod watchdog;
mod work;

use std::process::ExitCode;
use std::time::Instant;

use settings::Settings;

fn run() -> Result<Vec<String>, String> {
    let settings = Settings::from_environment()?;
    resources::share_heaps();
    let _libraries = library::Libraries::build()?;
    panics::silence_ours();
    altstack::install_handler();
    // pprof keeps a temporary file open from its first use on.
    drop(peer::Peer::start());
    let start = Instant::now();
    let mut aftermath = round::Aftermath::begin();
    let watchdog = watchdog::Watchdog::start();
    gekkota::profiler_init();
    let mut problems = Vec::new();
    let mut number = 0;
    while problems.is_empty()
        && (number < 2 || start.elapsed() + settings.round <= settings.duration)
    {
        problems.extend(round::run(number, settings.round));
        aftermath.round_is_over();
        number += 1;
    }
    gekkota::profiler_shutdown();
    drop(watchdog);
    problems.extend(aftermath.judge());
    Ok(problems)
}

fn main() -> ExitCode {
    match run() {
        Ok(problems) => {
            tally::print();
            for problem in &problems {
                eprintln!("storm: {problem}");
            }
            println!(
                "{}",
                if problems.is_empty() {
                    "no problems"
                } else {
                    "there are problems"
                }
            );
            if problems.is_empty() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("storm: {error}");
            ExitCode::FAILURE
        }
    }
}
