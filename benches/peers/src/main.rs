//! Measures gekkota and comparable libraries (its peers) side by side.
//!
//! Run `cargo peers NAME [--quick] [--json]` in the root of the repository.
//!
//! A measurement has several arms: gekkota (`ours`), its peers, and sometimes a floor without a
//! profiler. The arms are interleaved within one run, so that a disturbance of the machine affects
//! all of them. A figure is the median of its arm's runs, which the report lists as well. A missed
//! goal is reported and is not a failure: exit code 0 means that the measurement succeeded, 1 that
//! it failed, 2 that the command line is invalid.

mod alloc;
mod alloc_truth;
mod always_on;
mod ask;
mod batch;
mod built;
mod bursts;
mod bursts_arms;
mod bursts_work;
mod busy;
mod bytes_per_sample;
mod capture;
mod child;
mod chrome_trace;
mod churn;
mod context;
mod crash_file;
mod deep;
mod first_name;
mod formats;
mod gecko_coding;
mod handshake;
mod heap;
mod hour;
mod idle;
mod idle_bytes;
mod incident;
mod jobs;
mod kernels;
mod label;
mod libraries;
mod library_programs;
mod library_threads;
mod machine;
mod marker;
mod marker_arms;
mod marker_off;
mod marker_stack;
mod memory;
mod oversubscribed;
mod own_program;
mod processes;
mod profile;
mod push;
mod put;
mod rate;
mod raw;
mod raw_alloc;
mod raw_threads;
mod recording;
mod report;
mod rows;
mod samply;
mod schedule;
mod serving;
mod short_threads;
mod sleepers;
mod slowdown;
mod snapshot_pause;
mod spawn;
mod stall;
mod stall_arms;
mod start;
mod store;
mod stream;
mod summary;
mod symbolicate;
mod symbolicate_arms;
mod target;
mod tick;
mod tracing_layer;
mod unregistered;
mod unwind;
mod waiting_tasks;
mod weight;
mod whole_program;
mod wide;

// The unchanged workload of the example `quick_start`.
#[path = "../../../examples/quick_start/files.rs"]
mod files;
#[path = "../../../examples/quick_start/progress.rs"]
mod progress;
#[path = "../../../examples/quick_start/workload.rs"]
mod workload;

/// Counts and samples only in `alloc` and `alloc_truth`. Elsewhere it costs every arm the same
/// load.
#[global_allocator]
static ALLOCATOR: gekkota::memory::ProfilerAllocator = gekkota::memory::ProfilerAllocator::system();

use std::process::ExitCode;

use report::Report;

/// How long a measurement may take.
#[derive(Clone, Copy)]
struct Effort {
    /// Takes less than a minute, for a first look; published figures are not measured this
    /// way.
    quick: bool,
}

type Outcome = Result<Report, Box<dyn std::error::Error>>;

struct Measurement {
    name: &'static str,
    description: &'static str,
    run: fn(Effort) -> Outcome,
}

const MEASUREMENTS: &[Measurement] = &[
    Measurement {
        name: "stall",
        description: "time that one sample takes from a busy thread, 36 frames deep",
        run: stall::measure,
    },
    Measurement {
        name: "rate",
        description: "share of the requested samples that are delivered, for one busy thread at 100, 1,000 and 10,000 Hz",
        run: rate::measure,
    },
    Measurement {
        name: "capture",
        description: "share of the CPU time of 2, 8 and 64 busy threads that samples account for, at 1,000 Hz",
        run: capture::measure,
    },
    Measurement {
        name: "bursts",
        description: "CPU time that a profile puts at a wrong function, for work of 0.3 to 3 ms between waits; 10 minutes",
        run: bursts::measure,
    },
    Measurement {
        name: "idle",
        description: "CPU time of the profiler with 1,000 sleeping threads, and wake-ups in them, at 1,000 Hz",
        run: idle::measure,
    },
    Measurement {
        name: "oversubscribed",
        description: "share of ticks on schedule with 64 busy threads, at 1,000 Hz",
        run: oversubscribed::measure,
    },
    Measurement {
        name: "slowdown",
        description: "time for a fixed amount of work at 1,000 Hz, relative to no profiler",
        run: slowdown::measure,
    },
    Measurement {
        name: "unregistered",
        description: "cost and coverage of 1,000 sleeping and 64 busy threads that have not registered, at 1,000 Hz",
        run: unregistered::measure,
    },
    Measurement {
        name: "wide",
        description: "cost of a session with 100, 1,000 and 10,000 threads, of which 0, 2 or 8 run on and off",
        run: wide::measure,
    },
    Measurement {
        name: "short_threads",
        description: "share of the CPU time of 10,000 unregistered threads of 5 ms that is in samples, at 1,000 Hz",
        run: short_threads::measure,
    },
    Measurement {
        name: "library_threads",
        description: "share of a program's CPU time that is in named stacks, for four libraries that make threads",
        run: library_threads::measure,
    },
    Measurement {
        name: "churn",
        description: "time that registering and unregistering add to creating and joining a thread",
        run: churn::measure,
    },
    Measurement {
        name: "context",
        description: "time to enter and leave the context of a request",
        run: context::measure,
    },
    Measurement {
        name: "crash_file",
        description: "cost of a marker and of a sample with a crash file, relative to none",
        run: crash_file::measure,
    },
    Measurement {
        name: "label",
        description: "time to push and pop a label, with and without a session",
        run: label::measure,
    },
    Measurement {
        name: "processes",
        description: "cost of a child process in its parent's session, and time to gather 16 children of 10 MB each",
        run: processes::measure,
    },
    Measurement {
        name: "incident",
        description: "share of a slow request's time that its explanation puts on the right place",
        run: incident::measure,
    },
    Measurement {
        name: "waiting_tasks",
        description: "error of the shares of the places where 10,000 Tokio tasks wait, and what a poll costs",
        run: waiting_tasks::measure,
    },
    Measurement {
        name: "ask",
        description: "what 16 clients that ask a server for profiles at once wait, take and disturb",
        run: ask::measure,
    },
    Measurement {
        name: "always_on",
        description: "requests a second that a server under load loses to a profiler that always runs, at 100 Hz",
        run: always_on::measure,
    },
    Measurement {
        name: "push",
        description: "CPU time and memory to feed a store with one profile each 10 seconds, and what is between two profiles",
        run: push::measure,
    },
    Measurement {
        name: "spawn",
        description: "slowdown of spawning and forking processes, at 1,000 Hz",
        run: spawn::measure,
    },
    Measurement {
        name: "start",
        description: "time to start with 200 loaded libraries, time to stop, and delay of registrations during both",
        run: start::measure,
    },
    Measurement {
        name: "unwind",
        description: "time to unwind a frame of rustc's stacks, on the sampler's thread",
        run: unwind::measure,
    },
    Measurement {
        name: "bytes_per_sample",
        description: "bytes of buffer per sample of the quick start's workload, at 1,000 Hz",
        run: bytes_per_sample::measure,
    },
    Measurement {
        name: "idle_bytes",
        description: "bytes of buffer per sleeping thread and second, at 1,000 Hz",
        run: idle_bytes::measure,
    },
    Measurement {
        name: "put",
        description: "time to add a small marker, from 1, 2 and 16 threads at once",
        run: put::measure,
    },
    Measurement {
        name: "marker",
        description: "time to add a marker: with a name only, with a text, with three fields",
        run: marker::measure,
    },
    Measurement {
        name: "marker_off",
        description: "time to add a marker without a session, compared with a relaxed load",
        run: marker_off::measure,
    },
    Measurement {
        name: "marker_stack",
        description: "time to add a marker with a stack of 30 frames, on the calling thread",
        run: marker_stack::measure,
    },
    Measurement {
        name: "tracing_layer",
        description: "time for a span of `tracing` with ProfilerLayer, and with tracing-chrome",
        run: tracing_layer::measure,
    },
    Measurement {
        name: "alloc",
        description: "time that ProfilerAllocator adds to an allocation and its free",
        run: alloc::measure,
    },
    Measurement {
        name: "alloc_truth",
        description: "error of the bytes that sampled allocations estimate for each call site",
        run: alloc_truth::measure,
    },
    Measurement {
        name: "tick",
        description: "time that the application's counters take of each tick",
        run: tick::measure,
    },
    Measurement {
        name: "stream",
        description: "speed and memory use of writing a profile of 1,000,000 samples of 16 threads as JSON",
        run: stream::measure,
    },
    Measurement {
        name: "snapshot_pause",
        description: "additional delay of markers and ticks while such a profile is written",
        run: snapshot_pause::measure,
    },
    Measurement {
        name: "hour",
        description: "time that a buffer of 128 MiB lasts for 8 busy threads, at 1,000 Hz",
        run: hour::measure,
    },
    Measurement {
        name: "symbolicate",
        description: "time and memory to name 10,000 addresses of a program with much debug information",
        run: symbolicate::measure,
    },
    Measurement {
        name: "first_name",
        description: "time to save a profile of 8 threads with its first names, and again",
        run: first_name::measure,
    },
    Measurement {
        name: "formats",
        description: "speed and memory use of each format's writer on 1,000,000 samples",
        run: formats::measure,
    },
    Measurement {
        name: "summary",
        description: "share of regressions that the comparison of two profiles names first",
        run: summary::measure,
    },
    Measurement {
        name: "whole_program",
        description: "CPU and wall time of a program that parses for 2 s, from its start to its end",
        run: whole_program::measure,
    },
    Measurement {
        name: "weight",
        description: "packages, CPU time and bytes that a dependency adds to a program that prints one line",
        run: weight::measure,
    },
];

const USAGE: &str = "usage: cargo peers NAME [--quick] [--json]";
const HELP: &str = "\
  --quick  take less than a minute; published figures are not measured this way
  --json   also print the report as one line of JSON
  --help   print this help

NAME is one of:
";

enum Command {
    List,
    Run {
        measurement: &'static Measurement,
        effort: Effort,
        json: bool,
    },
}

/// Returns the command, or an error message for the user.
fn parse(arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let names = || {
        MEASUREMENTS
            .iter()
            .map(|measurement| measurement.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let (mut quick, mut json, mut help) = (false, false, false);
    let mut chosen: Option<&Measurement> = None;
    for argument in arguments {
        match argument.as_str() {
            "--quick" => quick = true,
            "--json" => json = true,
            "--help" | "-h" => help = true,
            option if option.starts_with('-') => {
                return Err(format!(
                    "cannot use option `{option}`: expected --quick, --json or --help"
                ));
            }
            name => {
                let found = MEASUREMENTS
                    .iter()
                    .find(|measurement| measurement.name == name);
                let found = found.ok_or_else(|| {
                    format!("cannot measure `{name}`: expected one of {}", names())
                })?;
                if let Some(first) = chosen.replace(found) {
                    let first = first.name;
                    return Err(format!(
                        "cannot measure both `{first}` and `{name}`: expected one name"
                    ));
                }
            }
        }
    }
    match chosen {
        Some(measurement) if !help => Ok(Command::Run {
            measurement,
            effort: Effort { quick },
            json,
        }),
        None if quick || json => Err(format!(
            "cannot measure: got no name, expected one of {}",
            names()
        )),
        _ => Ok(Command::List),
    }
}

fn list() {
    println!("Measures gekkota and comparable libraries side by side.\n\n{USAGE}\n\n{HELP}");
    let width = MEASUREMENTS
        .iter()
        .map(|measurement| measurement.name.len())
        .max()
        .unwrap_or(0);
    for Measurement {
        name, description, ..
    } in MEASUREMENTS
    {
        println!("  {name:width$}  {description}");
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((child::FLAG, rest)) = arguments
        .split_first()
        .map(|(first, rest)| (first.as_str(), rest))
    {
        return child::answer(rest);
    }
    let (measurement, effort, json) = match parse(arguments.into_iter()) {
        Ok(Command::Run {
            measurement,
            effort,
            json,
        }) => (measurement, effort, json),
        Ok(Command::List) => {
            list();
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            eprintln!("peers: {problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match (measurement.run)(effort) {
        Ok(report) => {
            print!("{}", report.table(measurement.name));
            if json {
                println!("{}", report.json(measurement.name));
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("peers: cannot measure `{}`: {error}", measurement.name);
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(arguments: &[&str]) -> String {
        match parse(arguments.iter().map(|argument| (*argument).to_owned())) {
            Ok(_) => String::new(),
            Err(problem) => problem,
        }
    }

    #[test]
    fn parse_errors_name_what_is_expected() {
        let all: Vec<&str> = MEASUREMENTS
            .iter()
            .map(|measurement| measurement.name)
            .collect();
        let all = all.join(", ");
        assert_eq!(
            problem(&["rote"]),
            format!("cannot measure `rote`: expected one of {all}")
        );
        assert_eq!(
            problem(&["rate", "--fast"]),
            "cannot use option `--fast`: expected --quick, --json or --help"
        );
        assert!(problem(&["rate", "rate"]).contains("expected one name"));
        assert!(problem(&["--json"]).contains(&format!("expected one of {all}")));
        for valid in [&[][..], &["rate"], &["--json", "rate", "--quick"], &["-h"]] {
            assert_eq!(problem(valid), "");
        }
    }
}
