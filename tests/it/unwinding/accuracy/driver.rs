//! Runs a case, step by step or sampled by a session, and judges the captured stacks.

use std::collections::HashSet;
use std::hint::black_box;
use std::time::Duration;

use gekkota::stack::{StackFrame, StackSample, profiler_capture_backtrace};
use gekkota::{AutoProfilerLabel, ProfilerSession, StartParams, gecko_profiler_category};

use super::stepper::{self, Step, WINDOW};
use super::table::{Bar, Row, Verdict, judge};
use crate::common::{Read, thread_cpu};

/// Label of the samples that were taken while a case ran.
const LABEL: &str = "the case runs";
const CATEGORY: gekkota::ProfilingCategoryPair = gecko_profiler_category!(Other);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Stepped,
    Sampled,
}

/// Calls `body` under a label from one place: once step by step, or until there are enough samples.
/// Returns its own callers.
#[inline(never)]
fn drive(
    mode: Mode,
    first_kept: usize,
    has_enough_samples: &mut dyn FnMut() -> bool,
    body: &mut dyn FnMut(),
) -> Vec<u64> {
    let reference = profiler_capture_backtrace().expect("a backtrace").resolve();
    let callers = callers_of_drive(&reference);
    if mode == Mode::Stepped {
        stepper::begin(callers.clone(), first_kept);
    }
    let text = match mode {
        Mode::Stepped => "the case is stepped through",
        Mode::Sampled => LABEL,
    };
    // The first label of a thread allocates, which stepped code must not do.
    drop(AutoProfilerLabel::new("the first label", CATEGORY));
    loop {
        if black_box(mode) == Mode::Stepped {
            stepper::start();
        }
        // The samples also show the label's own functions, so these are stepped through, too. But
        // only the steps of `body` are judged.
        let label = AutoProfilerLabel::new(text, CATEGORY);
        stepper::set_judged(true);
        body();
        stepper::set_judged(false);
        drop(label);
        if black_box(mode) == Mode::Stepped {
            stepper::stop();
        }
        if black_box(mode) == Mode::Stepped || has_enough_samples() {
            return callers;
        }
    }
}

pub(crate) fn addresses(stack: &StackSample) -> Vec<u64> {
    let address = |frame: &StackFrame| match frame {
        StackFrame::Native { address } => Some(address.get()),
        _ => None,
    };
    stack.frames().iter().filter_map(address).collect()
}

/// Returns the outer end of every true stack. Checks that it is the same each time, and that its
/// functions are the expected ones.
fn callers_of_drive(reference: &StackSample) -> Vec<u64> {
    use std::sync::OnceLock;
    static NAMED: OnceLock<Vec<u64>> = OnceLock::new();
    let callers = addresses(reference)[1..].to_vec();
    let thread_start = &callers[callers.len() - 3..];
    let known = NAMED.get_or_init(|| {
        let names: Vec<_> = reference
            .names()
            .iter()
            .flatten()
            .map(|name| name.name.as_str())
            .collect();
        let at = |part: &str| names.iter().position(|name| name.contains(part));
        let order = [
            at("driver::drive"),
            at("accuracy::"),
            at("__rust_begin_short_backtrace"),
            at("clone"),
        ];
        assert!(
            order.is_sorted() && order.iter().all(Option::is_some),
            "{order:?} in {reference}"
        );
        assert!(
            !reference.is_truncated() && names.last().is_some_and(|name| name.contains("clone")),
            "{reference}"
        );
        thread_start.to_vec()
    });
    assert!(
        !reference.is_truncated() && thread_start == known,
        "{reference}"
    );
    callers
}

/// Takes a backtrace after each instruction of `body`, and judges each backtrace. `body` must run
/// the same instructions each time.
pub(crate) fn step_through(row: &mut Row, body: &mut dyn FnMut()) -> Learned {
    let mut learned = Learned::default();
    let mut first_kept = 0;
    loop {
        let callers = drive(Mode::Stepped, first_kept, &mut || true, body);
        let (steps, seen) = stepper::end();
        for step in &steps {
            if step.is_judged {
                judge_step(row, step);
            }
            // Without the trampoline, and without the driver's callers.
            let mut stack = step.truth[1..step.truth.len() - callers.len()].to_vec();
            stack[0] = step.interrupted;
            // When a handler has returned, its trampoline is the innermost frame, whose address is
            // that of its next instruction.
            if let Some(place) = stack.iter().position(|frame| *frame == step.truth[0]) {
                let mut returned = stack[place..].to_vec();
                returned[0] -= 1;
                learned.stacks.insert(returned);
            }
            learned.stacks.insert(stack);
        }
        first_kept += WINDOW;
        if first_kept >= seen {
            return learned;
        }
    }
}

fn judge_step(row: &mut Row, step: &Step) {
    let stack = step.backtrace.resolve();
    let frames = addresses(&stack);
    // The innermost frame is the stepper's handler.
    let verdict = judge(&frames[1..], stack.is_truncated(), &step.truth);
    row.count(verdict, || describe(&frames[1..], &step.truth));
}

fn describe(frames: &[u64], truth: &[u64]) -> String {
    let maps = Maps::read();
    let same = frames
        .iter()
        .zip(truth)
        .take_while(|(one, other)| one == other)
        .count();
    let show = |frames: &[u64]| -> Vec<_> {
        frames
            .iter()
            .skip(same.saturating_sub(2))
            .take(5)
            .map(|frame| maps.show(*frame))
            .collect()
    };
    format!(
        "{} frames for {}, the same up to {same}: {:?} for {:?}",
        frames.len(),
        truth.len(),
        show(frames),
        show(truth)
    )
}

/// The process's mappings: start, end, file offset and file.
struct Maps(Vec<(u64, u64, u64, String)>);

impl Maps {
    fn read() -> Self {
        let text = std::fs::read_to_string("/proc/self/maps").expect("maps");
        let parse = |line: &str| {
            let mut fields = line.split_whitespace();
            let (start, end) = fields.next()?.split_once('-')?;
            let offset = u64::from_str_radix(fields.nth(1)?, 16).ok()?;
            let name = fields.nth(2).unwrap_or("").to_owned();
            Some((
                u64::from_str_radix(start, 16).ok()?,
                u64::from_str_radix(end, 16).ok()?,
                offset,
                name,
            ))
        };
        Self(text.lines().filter_map(parse).collect())
    }

    fn find(&self, address: u64) -> Option<&(u64, u64, u64, String)> {
        self.0
            .iter()
            .find(|(start, end, ..)| (*start..*end).contains(&address))
    }

    /// Returns the file that is mapped at the address.
    fn file_of(&self, address: u64) -> String {
        self.find(address)
            .map_or(String::new(), |(.., name)| name.clone())
    }

    fn show(&self, address: u64) -> String {
        match self.find(address) {
            Some((start, _, offset, name)) => {
                let name = name.rsplit('/').next().unwrap_or_default();
                format!("{name}+{:#x}", address - start + offset)
            }
            None => format!("{address:#x}"),
        }
    }
}

/// The true stacks that stepping met, without the driver's callers.
#[derive(Default)]
pub(crate) struct Learned {
    stacks: HashSet<Vec<u64>>,
    recursion: Option<Recursion>,
}

/// A recursion whose stacks were learned at one depth, and are sampled at another.
struct Recursion {
    /// Return address of each call but the first.
    returns_to: u64,
    learned: usize,
    sampled: usize,
}

impl Learned {
    pub(crate) fn add(&mut self, other: Self) {
        self.stacks.extend(other.stacks);
    }

    /// Adapts the stacks to the same recursion at a greater depth.
    pub(crate) fn with_recursion(mut self, learned: usize, sampled: usize) -> Self {
        let deepest = self
            .stacks
            .iter()
            .max_by_key(|stack| stack.len())
            .expect("stacks");
        let runs: Vec<_> = deepest
            .chunk_by(|one, next| one == next)
            .filter(|run| run.len() == learned)
            .collect();
        assert_eq!(runs.len(), 1, "the calls return to one place: {deepest:x?}");
        self.recursion = Some(Recursion {
            returns_to: runs[0][0],
            learned,
            sampled,
        });
        self
    }

    /// Shortens a stack to the learned depth. The deepest recursion becomes the deepest learned
    /// one, and all others that are deeper than the learned depth become the one before it.
    fn as_learned(&self, frames: Vec<u64>) -> Vec<u64> {
        let Some(recursion) = &self.recursion else {
            return frames;
        };
        let depth_for = |depth| match depth {
            _ if depth == recursion.sampled => recursion.learned,
            _ if depth < recursion.learned => depth,
            _ if depth < recursion.sampled => recursion.learned - 1,
            // More calls than were made.
            _ => depth,
        };
        let shorten = |run: &[u64]| {
            let length = if run[0] == recursion.returns_to {
                depth_for(run.len())
            } else {
                run.len()
            };
            vec![run[0]; length]
        };
        frames
            .chunk_by(|one, next| one == next)
            .flat_map(shorten)
            .collect()
    }

    /// Returns the file of each stack's innermost instruction, and its callers, including the
    /// driver's.
    fn by_file(&self, maps: &Maps, outer: &[u64]) -> HashSet<(String, Vec<u64>)> {
        let callers = |stack: &[u64]| stack[1..].iter().chain(outer).copied().collect();
        self.stacks
            .iter()
            .map(|stack| (maps.file_of(stack[0]), callers(stack)))
            .collect()
    }
}

/// Compares a sample with the true stacks. Its innermost instruction may be anywhere in the same
/// file.
fn judge_sample(
    known: &HashSet<(String, Vec<u64>)>,
    maps: &Maps,
    sample: &SampledFrames,
) -> Verdict {
    let Some((innermost, callers)) = sample.frames.split_first() else {
        return Verdict::Wrong;
    };
    let file = maps.file_of(*innermost);
    let has_prefix =
        |(known, stack): &(String, Vec<u64>)| *known == file && stack.starts_with(callers);
    match sample.is_truncated {
        true if known.iter().any(has_prefix) => Verdict::Truncated,
        false if known.contains(&(file, callers.to_vec())) => Verdict::Exact,
        _ => Verdict::Wrong,
    }
}

/// A sample of a profile without names, innermost first.
struct SampledFrames {
    frames: Vec<u64>,
    is_truncated: bool,
}

/// Starts a session at 10 kHz. The calling thread must be registered.
pub(crate) fn session() -> ProfilerSession {
    session_every(Duration::from_micros(100))
}

/// Starts a session with this interval. The calling thread must be registered.
pub(crate) fn session_every(interval: Duration) -> ProfilerSession {
    ProfilerSession::start(StartParams::default().interval(interval)).expect("start")
}

/// How long a case is sampled.
#[derive(Clone, Copy)]
pub(crate) struct Sampling {
    /// Minimum CPU time.
    pub(crate) cpu: Duration,
    /// Minimum number of samples of the thread. Nearly all of them are of the case.
    pub(crate) samples: u64,
}

impl Sampling {
    /// Returns a condition that is true once the session has the samples.
    fn condition(self, session: &ProfilerSession) -> impl FnMut() -> bool {
        let mut next_check = thread_cpu() + self.cpu;
        move || {
            if thread_cpu() < next_check {
                return false;
            }
            next_check += self.cpu;
            // Reading thousands of deep stacks back each time would take gigabytes.
            let counts = session.snapshot().expect("it runs").sampler_counts();
            let captured = counts.iter().find(|(name, _)| *name == "captured_samples");
            captured.expect("the count").1 >= self.samples
        }
    }
}

/// Repeats `body`, and judges the samples that the session takes of it.
pub(crate) fn sample(
    row: &mut Row,
    session: ProfilerSession,
    learned: &Learned,
    sampling: Sampling,
    body: &mut dyn FnMut(),
) {
    let callers = drive(Mode::Sampled, 0, &mut sampling.condition(&session), body);
    let profile = session.finish().expect("profile");
    let mut text = Vec::new();
    let options =
        gekkota::profile::SnapshotOptions::default().symbolicate(gekkota::profile::Symbolicate::No);
    profile
        .write_with(gekkota::profile::Format::Gecko, &mut text, &options)
        .expect("a vector never fails");
    let read = Read::from_text(&text);
    let maps = Maps::read();
    let known = learned.by_file(&maps, &callers);
    row.excuse_truncated(read.count("remote_samples") as usize);
    let counts = [
        "captured_samples",
        "remote_samples",
        "same_samples",
        "signals_to_sleepers",
        "missed_ticks",
    ]
    .map(|name| format!("{name}: {}", read.count(name)));
    for sample in read.samples(THREAD) {
        if !sample.stack.iter().any(|frame| frame == LABEL) {
            continue;
        }
        let address = |frame: &String| u64::from_str_radix(frame.strip_prefix("0x")?, 16).ok();
        let frames = learned.as_learned(sample.stack.iter().rev().filter_map(address).collect());
        let sampled = SampledFrames {
            frames,
            is_truncated: sample.stack.iter().any(|frame| frame == "(truncated)"),
        };
        let verdict = judge_sample(&known, &maps, &sampled);
        row.count(verdict, || {
            let nearest = learned.stacks.iter().max_by_key(|known| {
                known
                    .iter()
                    .rev()
                    .zip(sampled.frames.iter().rev())
                    .take_while(|(one, other)| one == other)
                    .count()
            });
            let description = describe(&sampled.frames, nearest.map_or(&[], Vec::as_slice));
            format!("{description}; {counts:?}")
        });
    }
}

/// The name of the thread that runs the cases.
pub(crate) const THREAD: &str = "accuracy";

/// Returns a row with the bar of exactness.
pub(crate) fn row(case: &str) -> Row {
    Row::new(case, Bar::Exact)
}
