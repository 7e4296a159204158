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
//! - Cold (`ours_cold`): the first 10,000 frames.
//!
//! The times are wall times: unless the benchmark has two processors, the sampler may be
//! descheduled while it unwinds.
//!
//! The peer is the platform's unwinder, `backtrace::trace`, on a stack of a little over 36 frames
//! in this program. The program is small and the stack always the same, so everything is in the
//! processor's caches.

use std::error::Error;
use std::fmt::Write as _;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::libraries::find_built_library;
use crate::machine::{self, load_note};
use crate::report::{Arm, Report, median};
use crate::{Effort, Outcome};

/// The module that rustc compiles, in many copies.
const COMPILED: &str = include_str!("../preload/compiled.rs");
const PRELOADED: &str = "libpeers_preload.so";
/// Environment variable that names the preloaded library's output file.
const COUNTS_VARIABLE: &str = "PEERS_UNWIND_COUNTS";

const COLD_FRAMES: u64 = 10_000;
const WARM_FROM: Duration = Duration::from_secs(1);
/// Minimum number of warm frames: fewer give no reliable figure.
const MIN_WARM_FRAMES: u64 = 500;
const PEER_DEPTH: usize = 36;
const PEER_TURNS: usize = 2000;
const GOAL_NS: f64 = 40.0;

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, copies) = if effort.quick { (2, 24) } else { (5, 60) };
    let program = Program::find()?;
    let folder = Folder::make()?;
    let source = folder.0.join("compiled.rs");
    std::fs::write(&source, generate(copies))?;
    let (mut warm, mut cold) = (Arm::new("ours"), Arm::extra("ours_cold"));
    let mut in_place = Arm::extra("ours_in_place");
    let mut backtrace = Arm::new("backtrace");
    let mut notes = vec![
        format!(
            "{rounds} runs of {} on {copies} copies of a module; {}",
            program.version,
            load_note()
        ),
        format!(
            "backtrace: {PEER_TURNS} traces of a stack of this small program, a little over {PEER_DEPTH} frames deep; \
             it is not the stack that ours unwinds"
        ),
    ];
    for round in 1..=rounds {
        let (readings, taken) = machine::watch(|| program.run(&source, &folder.0));
        let costs = Costs::of(&readings?)?;
        warm.runs.push(costs.warm_ns);
        in_place.runs.push(costs.in_place_ns);
        cold.runs.push(costs.cold_ns);
        backtrace.runs.push(time_backtrace());
        notes.push(format!(
            "round {round}: {} frames repeated, {} in place, {} cold; in place {:.1} ns per frame by the median of the \
             readings; {:.1} frames per sample; {} of {} samples truncated; {:.1} s; CPUs used by other processes + the hypervisor: {taken}",
            costs.warm_frames,
            costs.in_place_frames,
            costs.cold_frames,
            costs.median_in_place_ns,
            costs.frames_per_sample,
            costs.truncated,
            costs.samples,
            costs.seconds,
        ));
    }
    let met = warm.figure() <= GOAL_NS;
    Ok(Report {
        unit: "ns per frame, warm",
        ours: warm,
        peers: vec![backtrace, in_place, cold],
        floor: None,
        better: f64::min,
        goal: "ours <= 40 ns per frame, warm, in rustc",
        met,
        notes,
    })
}

fn generate(copies: usize) -> String {
    let mut text = String::new();
    for copy in 0..copies {
        // Writing to a string does not fail.
        let _ = writeln!(text, "pub mod copy_{copy} {{\n{COMPILED}}}");
    }
    text
}

/// A temporary folder for the measurement's files. Dropping it removes the folder.
struct Folder(PathBuf);

impl Folder {
    fn make() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("peers-unwind-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If this fails, the folder stays among the temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// rustc itself rather than rustup's proxy, and the library to preload.
struct Program {
    rustc: PathBuf,
    version: String,
    preloaded: PathBuf,
}

impl Program {
    fn find() -> Result<Self, Box<dyn Error>> {
        let text_of = |program: &Path, argument: &str| -> Result<String, Box<dyn Error>> {
            let output = Command::new(program)
                .arg(argument)
                .stderr(Stdio::inherit())
                .output()?;
            let name = program.display();
            match output.status.success() {
                true => Ok(String::from_utf8(output.stdout)?.trim().to_owned()),
                false => Err(format!("{name} {argument} ended with {}", output.status).into()),
            }
        };
        let rustc = Path::new(&text_of(Path::new("rustc"), "--print=sysroot")?).join("bin/rustc");
        let version = text_of(&rustc, "--version")?;
        let preloaded = find_built_library(PRELOADED)?;
        Ok(Self {
            rustc,
            version,
            preloaded,
        })
    }

    fn run(&self, source: &Path, folder: &Path) -> Result<Vec<Reading>, Box<dyn Error>> {
        let counts = folder.join("counts");
        let status = Command::new(&self.rustc)
            .args([
                "--edition=2024",
                "--crate-type=rlib",
                "-Copt-level=2",
                "-Ccodegen-units=1",
                "-o",
            ])
            .arg(folder.join("compiled.rlib"))
            .arg(source)
            .env("LD_PRELOAD", &self.preloaded)
            .env(COUNTS_VARIABLE, &counts)
            .status()?;
        if !status.success() {
            return Err(format!("{} ended with {status}", self.rustc.display()).into());
        }
        let text = std::fs::read_to_string(&counts)?;
        std::fs::remove_file(&counts)?;
        let readings: Option<Vec<Reading>> = text.lines().map(Reading::parse).collect();
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
    samples: u64,
    truncated: u64,
}

impl Reading {
    fn parse(line: &str) -> Option<Self> {
        let numbers: Vec<u64> = line
            .split(' ')
            .map(|number| number.parse().ok())
            .collect::<Option<_>>()?;
        let &[
            milliseconds,
            frames,
            ns,
            repeated_frames,
            repeated_ns,
            samples,
            truncated,
        ] = &numbers[..]
        else {
            return None;
        };
        let since_start = Duration::from_millis(milliseconds);
        Some(Self {
            since_start,
            frames,
            ns,
            repeated_frames,
            repeated_ns,
            samples,
            truncated,
        })
    }

    /// Returns the nanoseconds per frame since an earlier reading, or NaN without frames.
    fn ns_per_frame_since(&self, earlier: &Self) -> f64 {
        (self.ns - earlier.ns) as f64 / (self.frames - earlier.frames) as f64
    }
}

impl Reading {
    fn ns_per_repeated_frame_since(&self, earlier: &Self) -> f64 {
        (self.repeated_ns - earlier.repeated_ns) as f64
            / (self.repeated_frames - earlier.repeated_frames) as f64
    }
}

/// Figures of a run, computed from its readings.
struct Costs {
    cold_ns: f64,
    cold_frames: u64,
    warm_ns: f64,
    warm_frames: u64,
    in_place_ns: f64,
    in_place_frames: u64,
    median_in_place_ns: f64,
    frames_per_sample: f64,
    samples: u64,
    truncated: u64,
    seconds: f64,
}

impl Costs {
    fn of(readings: &[Reading]) -> Result<Self, Box<dyn Error>> {
        let last = readings.last().ok_or("the session has no readings")?;
        let cold = readings
            .iter()
            .find(|reading| reading.frames >= COLD_FRAMES)
            .unwrap_or(last);
        let warm = readings
            .iter()
            .position(|reading| reading.since_start >= WARM_FROM);
        let warm = &readings[warm.ok_or("rustc exited within a second")?..];
        let first = &warm[0];
        let warm_frames = last.repeated_frames - first.repeated_frames;
        if warm_frames < MIN_WARM_FRAMES {
            return Err(format!(
                "got {warm_frames} repeated frames after {WARM_FROM:?}, expected {MIN_WARM_FRAMES}"
            )
            .into());
        }
        let each: Vec<f64> = warm
            .windows(2)
            .map(|pair| pair[1].ns_per_frame_since(&pair[0]))
            .filter(|ns| ns.is_finite())
            .collect();
        Ok(Self {
            cold_ns: cold.ns_per_frame_since(&Reading::default()),
            cold_frames: cold.frames,
            warm_ns: last.ns_per_repeated_frame_since(first),
            warm_frames,
            in_place_ns: last.ns_per_frame_since(first),
            in_place_frames: last.frames - first.frames,
            median_in_place_ns: median(&each),
            frames_per_sample: last.frames as f64 / last.samples as f64,
            samples: last.samples,
            truncated: last.truncated,
            seconds: last.since_start.as_secs_f64(),
        })
    }
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

    fn reading(milliseconds: u64, frames: u64, ns: u64) -> Reading {
        let since_start = Duration::from_millis(milliseconds);
        let (repeated_frames, repeated_ns) = (frames / 10, ns / 40);
        Reading {
            since_start,
            frames,
            ns,
            repeated_frames,
            repeated_ns,
            samples: frames / 50,
            truncated: 0,
        }
    }

    #[test]
    fn parse_reads_a_line() {
        let expected = Reading {
            since_start: Duration::from_millis(50),
            frames: 4000,
            ns: 90_000,
            repeated_frames: 60,
            repeated_ns: 1500,
            samples: 80,
            truncated: 1,
        };
        assert_eq!(Reading::parse("50 4000 90000 60 1500 80 1"), Some(expected));
        assert_eq!(Reading::parse("50 4000"), None);
        assert_eq!(Reading::parse(""), None);
    }

    #[test]
    fn costs_separate_cold_from_warm_readings() {
        let readings = [
            reading(50, 4000, 800_000),
            reading(100, 12_000, 1_200_000),
            reading(1000, 100_000, 5_000_000),
            reading(1050, 115_000, 5_300_000),
            reading(1100, 120_000, 6_000_000),
        ];
        let costs = Costs::of(&readings).expect("costs");
        assert_eq!((costs.cold_ns, costs.cold_frames), (100.0, 12_000));
        assert_eq!((costs.in_place_ns, costs.in_place_frames), (50.0, 20_000));
        assert_eq!((costs.warm_ns, costs.warm_frames), (12.5, 2000));
        assert_eq!(costs.median_in_place_ns, (20.0 + 140.0) / 2.0);
        assert!(Costs::of(&readings[..2]).is_err());
        assert!(Costs::of(&readings[..3]).is_err());
    }

    #[test]
    fn generate_makes_a_module_per_copy() {
        let text = generate(2);
        assert!(text.starts_with("pub mod copy_0 {\n//! "));
        assert!(text.ends_with("}\n}\n") && text.contains("\n}\npub mod copy_1 {\n"));
    }

    #[test]
    fn time_backtrace_returns_a_time() {
        let ns = time_backtrace();
        assert!(ns.is_finite() && ns > 0.0);
    }
}
