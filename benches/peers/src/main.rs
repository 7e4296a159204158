//! Measures gekkota beside its peers: `cargo peers NAME [--quick] [--json]` from the root of the repository.
//!
//! Ours and the peers take turns within one run, so that what disturbs the machine disturbs all of them. A figure is
//! the median of its arm's runs, which stand beside it. A goal that is not met is told, and is no failure: exit code 0
//! says that something was measured, 1 that it could not be, 2 that the command line makes no sense.

mod batch;
mod busy;
mod bytes_per_sample;
mod capture;
mod child;
mod chrome_trace;
mod churn;
mod deep;
mod gecko_coding;
mod handshake;
mod hour;
mod idle;
mod idle_bytes;
mod label;
mod libraries;
mod machine;
mod marker;
mod marker_arms;
mod marker_off;
mod marker_stack;
mod memory;
mod oversubscribed;
mod profile;
mod put;
mod rate;
mod raw;
mod raw_threads;
mod recording;
mod report;
mod rows;
mod schedule;
mod sleepers;
mod slowdown;
mod snapshot_pause;
mod spawn;
mod stall;
mod stall_arms;
mod start;
mod stream;
mod target;
mod tracing_layer;
mod unwind;

// The quick start's work, as it is.
#[path = "../../../examples/quick_start/files.rs"]
mod files;
#[path = "../../../examples/quick_start/progress.rs"]
mod progress;
#[path = "../../../examples/quick_start/workload.rs"]
mod workload;

use std::process::ExitCode;

use report::Report;

/// How a measurement is to be done.
#[derive(Clone, Copy)]
struct Effort {
    /// Less than half a minute, for a look; the figures that are published are not measured so.
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
        description: "time taken from a busy thread by one sample, 36 frames deep",
        run: stall::measure,
    },
    Measurement {
        name: "rate",
        description: "samples delivered per sample asked for, of one busy thread at 100, 1,000 and 10,000 Hz",
        run: rate::measure,
    },
    Measurement {
        name: "capture",
        description: "CPU time that stands in samples, by that which 2, 8 and 64 busy threads used, at 1,000 Hz",
        run: capture::measure,
    },
    Measurement {
        name: "idle",
        description: "CPU that the profiler uses beside 1,000 sleeping threads, and wake-ups in them, at 1,000 Hz",
        run: idle::measure,
    },
    Measurement {
        name: "oversubscribed",
        description: "ticks on schedule beside 64 busy threads, at 1,000 Hz",
        run: oversubscribed::measure,
    },
    Measurement {
        name: "slowdown",
        description: "time for a fixed amount of work at 1,000 Hz, by that without a profiler",
        run: slowdown::measure,
    },
    Measurement {
        name: "churn",
        description: "what registering and unregistering add to making and joining a thread",
        run: churn::measure,
    },
    Measurement {
        name: "label",
        description: "a push and pop of a label, with and without a session",
        run: label::measure,
    },
    Measurement {
        name: "spawn",
        description: "slowdown of spawning processes and of forks, at 1,000 Hz",
        run: spawn::measure,
    },
    Measurement {
        name: "start",
        description: "time to start with 200 loaded libraries, to stop, and what registering threads wait for meanwhile",
        run: start::measure,
    },
    Measurement {
        name: "unwind",
        description: "time to unwind a frame of rustc's stacks, on the sampler's thread",
        run: unwind::measure,
    },
    Measurement {
        name: "bytes_per_sample",
        description: "bytes of the buffer for a sample of the quick start's work, at 1,000 Hz",
        run: bytes_per_sample::measure,
    },
    Measurement {
        name: "idle_bytes",
        description: "bytes of the buffer for a sleeping thread and second, at 1,000 Hz",
        run: idle_bytes::measure,
    },
    Measurement {
        name: "put",
        description: "adding a small marker, from 1, 2 and 16 threads at once",
        run: put::measure,
    },
    Measurement {
        name: "marker",
        description: "adding a marker: its name alone, with a text, with three fields",
        run: marker::measure,
    },
    Measurement {
        name: "marker_off",
        description: "the same without a session, against a relaxed load",
        run: marker_off::measure,
    },
    Measurement {
        name: "marker_stack",
        description: "time that a marker with a stack of 30 frames takes from who adds it",
        run: marker_stack::measure,
    },
    Measurement {
        name: "tracing_layer",
        description: "a span of `tracing` through the layer, and through tracing-chrome",
        run: tracing_layer::measure,
    },
    Measurement {
        name: "stream",
        description: "writing a profile of 1,000,000 samples of 16 threads as JSON, and the memory that it takes",
        run: stream::measure,
    },
    Measurement {
        name: "snapshot_pause",
        description: "how much longer markers and ticks wait while that profile is written",
        run: snapshot_pause::measure,
    },
    Measurement {
        name: "hour",
        description: "how long 128 MiB last for 8 busy threads, at 1,000 Hz",
        run: hour::measure,
    },
];

const USAGE: &str = "cargo peers NAME [--quick] [--json]";

enum Command {
    List,
    Run {
        measurement: &'static Measurement,
        effort: Effort,
        json: bool,
    },
}

/// The command that the arguments ask for, or a sentence on what is wrong with them.
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
                    "there is no option `{option}`; accepted: --quick, --json, --help"
                ));
            }
            name => {
                let found = MEASUREMENTS
                    .iter()
                    .find(|measurement| measurement.name == name);
                let found = found.ok_or_else(|| {
                    format!("there is no measurement `{name}`; accepted: {}", names())
                })?;
                if let Some(first) = chosen.replace(found) {
                    let first = first.name;
                    return Err(format!(
                        "two measurements, `{first}` and `{name}`; accepted: one at a time"
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
            "an option without a measurement; accepted: {}",
            names()
        )),
        _ => Ok(Command::List),
    }
}

fn list() {
    println!("{USAGE}\n");
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
            eprintln!("peers: {problem}\nusage: {USAGE}");
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
            eprintln!("peers: {} could not be measured: {error}", measurement.name);
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
    fn what_makes_no_sense_is_told_with_what_is_accepted() {
        let all: Vec<&str> = MEASUREMENTS
            .iter()
            .map(|measurement| measurement.name)
            .collect();
        let all = all.join(", ");
        assert_eq!(
            problem(&["rote"]),
            format!("there is no measurement `rote`; accepted: {all}")
        );
        assert_eq!(
            problem(&["rate", "--fast"]),
            "there is no option `--fast`; accepted: --quick, --json, --help"
        );
        assert!(problem(&["rate", "rate"]).contains("one at a time"));
        assert!(problem(&["--json"]).contains(&format!("accepted: {all}")));
        for fine in [&[][..], &["rate"], &["--json", "rate", "--quick"], &["-h"]] {
            assert_eq!(problem(fine), "");
        }
    }
}
