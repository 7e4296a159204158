//! Everything that can disturb an in-process profiler, at once. Also checks which resources remain
//! afterwards.
//!
//! Run `cargo run --release --manifest-path tests/storm/Cargo.toml` in the root of the repository.
//! `STORM_ALWAYS_ON=1` adds the clients of a server, a store, dumps and the contexts of requests.
//! `STORM_SECONDS` sets the duration, by default a minute. A run of half an hour or more also
//! checks that the resident memory is flat. Exit code 0 means that the storm found no problem.

mod altstack;
mod always_on;
mod backtraces;
mod blocked;
mod children;
mod churn;
mod control;
mod copies;
mod coroutines;
mod crew;
mod folder;
mod forks;
mod gate;
mod host_files;
mod labels;
mod library;
mod loader;
mod loops;
mod memory;
mod panics;
mod peer;
#[path = "../../plugin/tests/common/mod.rs"]
mod plugin;
mod plugins;
mod programs;
mod proof;
mod random;
mod reader;
mod recursion;
mod registers;
mod resources;
mod roster;
mod round;
mod saver;
#[path = "../../it/common/seccomp.rs"]
#[allow(dead_code, reason = "the tests of the crate use more of it")]
mod seccomp;
mod settings;
mod shortage;
mod spawning;
mod steadiness;
mod store;
mod swarm;
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
    shortage::limit_descriptors();
    programs::keep_inherited_descriptors();
    let _folder = folder::Folder::create()?;
    always_on::prepare()?;
    library::build()?;
    panics::silence_ours();
    altstack::install_handler();
    // pprof keeps a temporary file open from its first use on.
    drop(peer::Peer::start());
    let start = Instant::now();
    let mut aftermath = round::Aftermath::begin();
    let companion = programs::crowd::Companion::start()?;
    let watchdog = watchdog::Watchdog::start();
    gekkota::profiler_init();
    control::install_handlers();
    let mut problems = Vec::new();
    let mut number = 0;
    while problems.is_empty()
        && (number < 2 || start.elapsed() + settings.round <= settings.duration)
    {
        problems.extend(round::run(number, settings.round));
        aftermath.round_is_over();
        number += 1;
        if start.elapsed() * 2 >= settings.duration {
            settings::begin_second_half();
        }
    }
    let post = crew::Post::establish("the end of the storm".to_owned(), None);
    gekkota::profiler_shutdown();
    post.close();
    drop(watchdog);
    problems.extend(companion.end());
    problems.extend(tally::problem_of_sandboxes());
    problems.extend(always_on::problems());
    problems.extend(aftermath.judge());
    Ok(problems)
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if let Some(program) = arguments.next() {
        return programs::main(&program, arguments);
    }
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
