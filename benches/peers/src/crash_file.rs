//! `crash_file`: time to add a marker and to take a sample with a crash file, relative to none.
//!
//! The arms' batches are interleaved in one process, and their order rotates. Each batch is a session
//! of its own, at 1,000 Hz: with a crash file on a disk (`ours`), with one in memory, and without.
//! The figures of markers are ns per untyped marker, and per marker with two numbers; those
//! of samples are ns of the sampler's CPU time per sample of a busy thread.

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gekkota::{
    MarkerOptions, ProfilerSession, StartParams, add_marker, add_untyped_marker,
    gecko_profiler_category, marker_type, register_thread, unregister_thread,
};
use serde_json::{Value, json};

use crate::batch::batch;
use crate::machine::{self, load_note};
use crate::profile::count;
use crate::report::{Arm, Report, median};
use crate::{Effort, Outcome, child};

const INTERVAL: Duration = Duration::from_millis(1);
const CAPACITY_BYTES: u64 = 4 << 20;
/// Rounds of eight markers in a batch.
const ROUNDS: u32 = 10_000;
/// Batches after which the buffer is full.
const FILLING_BATCHES: usize = 8;
/// How long a busy thread is sampled in a batch.
const SAMPLED: Duration = Duration::from_millis(100);
/// The ratio that counts as the same cost.
const GOAL_RATIO: f64 = 1.05;

marker_type! {
    struct Small {
        number: u64 => "Number", Integer;
        share: f64 => "Share", Percentage;
    }
}

/// Where the crash file of an arm lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Disk,
    Memory,
    Nowhere,
}

impl Place {
    const ALL: [Self; 3] = [Self::Disk, Self::Memory, Self::Nowhere];

    fn path(self) -> Option<PathBuf> {
        let folder = match self {
            Self::Disk => std::env::current_dir().ok()?,
            Self::Memory => PathBuf::from("/dev/shm"),
            Self::Nowhere => return None,
        };
        Some(folder.join(format!("gekkota-crash-file-{}", std::process::id())))
    }
}

/// What is measured.
const KINDS: [[&str; 3]; 3] = [
    ["ours", "in_memory", "without"],
    ["typed", "typed_in_memory", "typed_without"],
    ["sample", "sample_in_memory", "sample_without"],
];
const PEER: &str = "without";

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, batches) = if effort.quick { (2, 10) } else { (7, 40) };
    let names = KINDS.as_flattened();
    let new_arm = |name: &&'static str| match *name {
        PEER => Arm::new(name),
        _ => Arm::extra(name),
    };
    let mut arms: Vec<Arm> = names.iter().map(new_arm).collect();
    arms[0].extra = false;
    let mut notes = vec![format!(
        "{rounds} rounds of {batches} batches of {} markers per arm, interleaved; {}",
        ROUNDS * crate::batch::PER_ROUND,
        load_note()
    )];
    for round in 1..=rounds {
        let (run, taken) = machine::watch(|| child::run("crash_file", &[batches.to_string()]));
        let run = run?;
        for (index, arm) in arms.iter_mut().enumerate() {
            let figure = run["medians"][index].as_f64();
            arm.runs
                .push(figure.ok_or("the child's answer lacks the figure of an arm")?);
        }
        notes.push(format!(
            "round {round}: CPUs used by other processes + the hypervisor: {taken}"
        ));
    }
    let ratio =
        |kind: usize, place: usize| arms[3 * kind + place].figure() / arms[3 * kind + 2].figure();
    for (kind, names) in KINDS.iter().enumerate() {
        notes.push(format!(
            "{}: {:.3} times the cost without a file; in memory: {:.3}",
            names[0],
            ratio(kind, 0),
            ratio(kind, 1)
        ));
    }
    let met = (0..KINDS.len()).all(|kind| ratio(kind, 0) <= GOAL_RATIO);
    let ours = arms.remove(0);
    Ok(Report {
        unit: "ns per marker; of the sampler's CPU time per sample",
        ours,
        peers: arms,
        floor: None,
        better: f64::min,
        goal: "with a crash file at most 1.05 times the cost without one",
        met,
        notes,
    })
}

/// Runs one round in the child process. Argument: the number of batches per arm.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [batches] = arguments else {
        return Err("expected the number of batches".into());
    };
    let mut figures: [Vec<f64>; 9] = Default::default();
    for batch in 0..batches.parse::<usize>()? {
        for turn in 0..Place::ALL.len() {
            let place = (batch + turn) % Place::ALL.len();
            let of_batch = run_batch(Place::ALL[place])?;
            for (kind, figure) in of_batch.into_iter().enumerate() {
                figures[3 * kind + place].push(figure);
            }
        }
    }
    let medians = figures.each_ref().map(|figures| median(figures));
    Ok(json!({ "medians": medians }))
}

/// Returns the figures of one session, by kind.
fn run_batch(place: Place) -> Result<[f64; 3], Box<dyn Error>> {
    let mut params = StartParams::default()
        .interval(INTERVAL)
        .capacity_bytes(CAPACITY_BYTES);
    if let Some(path) = place.path() {
        params = params.crash_file(path);
    }
    let session = ProfilerSession::start(params)?;
    register_thread("crash_file");
    // Until the buffer is full, the first store to each of its pages costs a page fault, which takes
    // longer in a file on a disk.
    (0..FILLING_BATCHES).for_each(|_| _ = untyped());
    let untyped = untyped();
    typed();
    let typed = typed();
    let before = sampler_of(&session)?;
    let begin = Instant::now();
    while begin.elapsed() < SAMPLED {
        std::hint::black_box(());
    }
    let after = sampler_of(&session)?;
    unregister_thread();
    drop(session);
    let samples = (after.1 - before.1).max(1.0);
    Ok([untyped, typed, (after.0 - before.0) / samples])
}

/// Returns the sampler's CPU time in ns, and its number of captured samples.
fn sampler_of(session: &ProfilerSession) -> Result<(f64, f64), Box<dyn Error>> {
    let profile = session.snapshot()?;
    let count = |name| count(&profile, name).unwrap_or(0) as f64;
    Ok((count("sampler_cpu_ns"), count("captured_samples")))
}

#[inline(never)]
fn untyped() -> f64 {
    batch!(
        ROUNDS,
        add_untyped_marker(
            "a marker",
            gecko_profiler_category!(Other),
            MarkerOptions::default()
        )
    )
}

#[inline(never)]
fn typed() -> f64 {
    batch!(
        ROUNDS,
        add_marker(
            "a marker",
            gecko_profiler_category!(Other),
            MarkerOptions::default(),
            Small {
                number: std::hint::black_box(12345),
                share: 0.25
            }
        )
    )
}
