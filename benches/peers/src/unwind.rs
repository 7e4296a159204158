//! `unwind`: time to unwind a frame on the sampler's thread, in a large real program: rustc, whose
//! two libraries are 350 MB and whose stacks go through both.
//!
//! rustc compiles a generated crate with a preloaded library of ours (`preload/lib.rs`), which
//! profiles all its threads at 1,000 Hz. The session counts the frames that it has unwound and the
//! time that this took; the library reads both every 50 ms.
//!
//! - Warm (`ours`): one stack in 64 is immediately unwound a second time, so that the rules and the
//!   processor's caches are warm. Counting starts a second after the start.
//! - In place (`ours_in_place`): the stacks of the same period as they arrive, once a millisecond.
//!   Another processor has written each word, other work has displaced the rules from the caches,
//!   and some addresses are new.
//!
//! The times are wall times: unless the benchmark has two processors, the sampler may be
//! descheduled while it unwinds.
//!
//! The peer is the platform's unwinder, `backtrace::trace`, on a stack of a little over 36 frames
//! in this program. The program is small and the stack always the same, so everything is in the
//! processor's caches.

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::built::run;
use crate::libraries::{LIBRARY, find_built_library};
use crate::prelude::*;

/// The module that rustc compiles, in many copies.
const COMPILED: &str = include_str!("kernels.rs");
/// Environment variable that names the preloaded library's output file.
const COUNTS_VARIABLE: &str = "PEERS_UNWIND_COUNTS";

const WARM_FROM: Duration = Duration::from_secs(1);
/// Minimum number of warm frames: fewer give no reliable figure.
const MIN_WARM_FRAMES: u64 = 500;
const PEER_DEPTH: usize = 36;
const PEER_TURNS: usize = 2000;

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "unwind",
    unit: "ns per frame, warm",
    goal: "ours <= 40 ns per frame, warm, in rustc",
    peers: &["backtrace"],
    is_met: |study| study.at_most(&["ours"], 40.0),
    measure: |study| {
        let copies = study.pick(24, 60);
        let program = Program::find()?;
        let folder = Temporary::folder("-unwind")?;
        let source = folder.join("compiled.rs");
        std::fs::write(&source, generate(copies))?;
        let about = format!("{} on {copies} copies of a module", program.version);
        study.rounds(study.pick(2, 5), about, |study, _| {
            let [warm, in_place] = costs(&program.run(&source, &folder)?)?;
            study.push("ours", warm);
            study.push("ours_in_place", in_place);
            study.push("backtrace", time_backtrace());
            Ok(())
        })
    },
    ..Measurement::NEW
};

fn generate(copies: usize) -> String {
    let mut text =
        "pub mod raw {\n    pub fn thread_cpu_ns() -> u64 {\n        0\n    }\n}\n".to_owned();
    for copy in 0..copies {
        // Writing to a string does not fail.
        let _ = writeln!(text, "pub mod copy_{copy} {{\n{COMPILED}}}");
    }
    text
}

/// rustc itself rather than rustup's proxy, and the library to preload.
struct Program {
    rustc: PathBuf,
    version: String,
    preloaded: PathBuf,
}

impl Program {
    fn find() -> Fallible<Self> {
        let text_of = |program: &Path, argument: &str| -> Fallible<String> {
            let mut command = Command::new(program);
            command.arg(argument);
            Ok(run(command)?.0.trim().to_owned())
        };
        let rustc = Path::new(&text_of(Path::new("rustc"), "--print=sysroot")?).join("bin/rustc");
        Ok(Self {
            version: text_of(&rustc, "--version")?,
            rustc,
            preloaded: find_built_library(LIBRARY)?,
        })
    }

    fn run(&self, source: &Path, folder: &Path) -> Fallible<Vec<Reading>> {
        let counts = folder.join("counts");
        let mut command = Command::new(&self.rustc);
        let options = [
            "--edition=2024",
            "--crate-type=rlib",
            "-Copt-level=2",
            "-Ccodegen-units=1",
        ];
        command
            .args(options)
            .arg("-o")
            .arg(folder.join("compiled.rlib"))
            .arg(source)
            .env("LD_PRELOAD", &self.preloaded)
            .env(COUNTS_VARIABLE, &counts);
        run(command)?;
        let text = std::fs::read_to_string(&counts)?;
        std::fs::remove_file(&counts)?;
        let readings: Option<_> = text.lines().map(Reading::parse).collect();
        readings.ok_or_else(|| "cannot parse the readings of the counters".into())
    }
}

/// Counters of the session at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Reading {
    since_start: Duration,
    frames: u64,
    ns: u64,
    repeated_frames: u64,
    repeated_ns: u64,
}

impl Reading {
    fn parse(line: &str) -> Option<Self> {
        let numbers = line.split(' ').map(|number| number.parse().ok());
        let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
        let [milliseconds, frames, ns, repeated_frames, repeated_ns] =
            numbers[..].try_into().ok()?;
        Some(Self {
            since_start: Duration::from_millis(milliseconds),
            frames,
            ns,
            repeated_frames,
            repeated_ns,
        })
    }
}

/// Returns the ns per frame of a run, warm and in place.
fn costs(readings: &[Reading]) -> Fallible<[f64; 2]> {
    let last = readings.last().ok_or("the session has no readings")?;
    let mut warm = readings.iter();
    let first = warm.find(|reading| reading.since_start >= WARM_FROM);
    let first = first.ok_or("rustc exited within a second")?;
    let warm_frames = last.repeated_frames - first.repeated_frames;
    if warm_frames < MIN_WARM_FRAMES {
        return Err(format!(
            "got {warm_frames} repeated frames after {WARM_FROM:?}, expected {MIN_WARM_FRAMES}"
        )
        .into());
    }
    Ok([
        (last.repeated_ns - first.repeated_ns) as f64 / warm_frames as f64,
        (last.ns - first.ns) as f64 / (last.frames - first.frames) as f64,
    ])
}

/// Returns the nanoseconds per frame of `backtrace::trace`, as the median of many traces.
fn time_backtrace() -> f64 {
    at_depth(PEER_DEPTH, &mut || {
        let trace = || {
            let mut frames = 0u32;
            let start = Instant::now();
            backtrace::trace(|frame| {
                black_box(frame.ip());
                frames += 1;
                true
            });
            start.elapsed().as_nanos() as f64 / f64::from(frames)
        };
        let turns: Vec<f64> = (0..PEER_TURNS).map(|_| trace()).collect();
        median(&turns)
    })
}

/// Calls `body` from `depth` nested calls.
#[inline(never)]
fn at_depth(depth: usize, body: &mut dyn FnMut() -> f64) -> f64 {
    // Passing the result to `black_box` keeps the call from becoming a jump.
    black_box(if depth <= 1 {
        body()
    } else {
        at_depth(depth - 1, body)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_reads_a_line() {
        let expected = Reading {
            since_start: Duration::from_millis(50),
            frames: 4000,
            ns: 90_000,
            repeated_frames: 60,
            repeated_ns: 1500,
        };
        assert_eq!(Reading::parse("50 4000 90000 60 1500"), Some(expected));
        assert_eq!(Reading::parse("50 4000"), None);
        assert_eq!(Reading::parse(""), None);
    }

    #[test]
    fn costs_are_those_of_warm_readings() {
        let reading = |milliseconds, frames, ns| Reading {
            since_start: Duration::from_millis(milliseconds),
            frames,
            ns,
            repeated_frames: frames / 10,
            repeated_ns: ns / 40,
        };
        let readings = [
            reading(50, 4000, 800_000),
            reading(1000, 100_000, 5_000_000),
            reading(1050, 115_000, 5_300_000),
            reading(1100, 120_000, 6_000_000),
        ];
        assert_eq!(costs(&readings).expect("costs"), [12.5, 50.0]);
        assert!(costs(&readings[..1]).is_err());
        assert!(costs(&readings[..2]).is_err());
    }

    #[test]
    fn generate_makes_a_module_per_copy() {
        let text = generate(2);
        assert!(text.contains("\n}\npub mod copy_0 {\n//! "));
        assert!(text.ends_with("}\n}\n") && text.contains("\n}\npub mod copy_1 {\n"));
    }

    #[test]
    fn time_backtrace_returns_a_time() {
        let ns = time_backtrace();
        assert!(ns.is_finite() && ns > 0.0);
    }
}
