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
mod hand_over;
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
mod marker_off;
mod marker_stack;
mod memory;
mod oversubscribed;
mod own_program;
mod pprof_rs;
mod prelude;
mod processes;
mod profile;
mod push;
mod put;
mod random;
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
mod start;
mod store;
mod stream;
mod study;
mod summary;
mod symbolicate;
mod symbolicate_arms;
mod target;
mod temporary;
mod threads;
mod tick;
mod tracing_layer;
mod turns;
mod unregistered;
mod unwind;
mod waiting_tasks;
mod weight;
mod whole_program;
mod wide;

// What `cargo bench` has, too.
#[path = "../../common/batch.rs"]
mod batch;
#[path = "../../common/numbers.rs"]
mod numbers;

// The unchanged workload of the example `quick_start`.
#[path = "../../../examples/quick_start/files.rs"]
mod files;
#[path = "../../../examples/quick_start/progress.rs"]
mod progress;
#[path = "../../../examples/quick_start/workload.rs"]
mod workload;

use std::process::ExitCode;

use study::{Measurement, Study};

/// All measurements, in the order in which they are listed.
const MEASUREMENTS: &[&Measurement] = &[
    &stall::MEASUREMENT,
    &rate::MEASUREMENT,
    &capture::MEASUREMENT,
    &bursts::MEASUREMENT,
    &idle::MEASUREMENT,
    &oversubscribed::MEASUREMENT,
    &slowdown::MEASUREMENT,
    &hand_over::MEASUREMENT,
    &unregistered::MEASUREMENT,
    &wide::MEASUREMENT,
    &short_threads::MEASUREMENT,
    &library_threads::MEASUREMENT,
    &churn::MEASUREMENT,
    &context::MEASUREMENT,
    &crash_file::MEASUREMENT,
    &label::MEASUREMENT,
    &processes::MEASUREMENT,
    &incident::MEASUREMENT,
    &waiting_tasks::MEASUREMENT,
    &ask::MEASUREMENT,
    &always_on::MEASUREMENT,
    &push::MEASUREMENT,
    &spawn::MEASUREMENT,
    &start::MEASUREMENT,
    &unwind::MEASUREMENT,
    &bytes_per_sample::MEASUREMENT,
    &idle_bytes::MEASUREMENT,
    &put::MEASUREMENT,
    &marker::MEASUREMENT,
    &marker_off::MEASUREMENT,
    &marker_stack::MEASUREMENT,
    &tracing_layer::MEASUREMENT,
    &alloc::MEASUREMENT,
    &alloc_truth::MEASUREMENT,
    &tick::MEASUREMENT,
    &stream::MEASUREMENT,
    &snapshot_pause::MEASUREMENT,
    &hour::MEASUREMENT,
    &symbolicate::MEASUREMENT,
    &first_name::MEASUREMENT,
    &formats::MEASUREMENT,
    &summary::MEASUREMENT,
    &whole_program::MEASUREMENT,
    &weight::MEASUREMENT,
];

const USAGE: &str = "usage: cargo peers NAME [--quick] [--json]";
const HELP: &str = "\
  --quick  take less than a minute; published figures are not measured this way
  --json   also print the report as one line of JSON
  --help   print this help

NAME is one of:
";

/// A measurement, whether it is a quick one, and whether to print JSON.
type Choice = (&'static Measurement, bool, bool);

fn find(name: &str) -> Option<&'static Measurement> {
    let mut all = MEASUREMENTS.iter().copied();
    all.find(|measurement| measurement.name == name)
}

/// Returns what to measure, `None` to list everything, or an error message for the user.
fn parse(arguments: impl Iterator<Item = String>) -> Result<Option<Choice>, String> {
    let names = || {
        let names: Vec<&str> = MEASUREMENTS.iter().map(|known| known.name).collect();
        names.join(", ")
    };
    let (mut is_quick, mut json, mut help) = (false, false, false);
    let mut chosen: Option<&Measurement> = None;
    for argument in arguments {
        match argument.as_str() {
            "--quick" => is_quick = true,
            "--json" => json = true,
            "--help" | "-h" => help = true,
            option if option.starts_with('-') => {
                return Err(format!(
                    "cannot use option `{option}`: expected --quick, --json or --help"
                ));
            }
            name => {
                let found = find(name).ok_or_else(|| {
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
        Some(measurement) if !help => Ok(Some((measurement, is_quick, json))),
        None if is_quick || json => Err(format!(
            "cannot measure: got no name, expected one of {}",
            names()
        )),
        _ => Ok(None),
    }
}

fn list() {
    println!("Measures gekkota and comparable libraries side by side.\n\n{USAGE}\n\n{HELP}");
    for known in MEASUREMENTS {
        println!("  {:16}  {}", known.name, known.unit);
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [child::FLAG, name] = arguments
        .iter()
        .map(String::as_str)
        .take(2)
        .collect::<Vec<_>>()[..]
    {
        let Some(measurement) = find(name) else {
            eprintln!(
                "peers: cannot use `{}`: only the program itself passes it",
                child::FLAG
            );
            return ExitCode::from(2);
        };
        return child::answer(measurement, &arguments[2..]);
    }
    let (measurement, is_quick, json) = match parse(arguments.into_iter()) {
        Ok(Some(choice)) => choice,
        Ok(None) => {
            list();
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            eprintln!("peers: {problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match Study::run_all(measurement, is_quick) {
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
