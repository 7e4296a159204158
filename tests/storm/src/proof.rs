//! Reads a profile back and reports what is wrong with it.

use std::collections::HashMap;
use std::sync::Arc;

use gekkota::Profile;
use gekkota::profile::{Format, SnapshotOptions, Symbolicate};
use serde_json::Value;

use crate::churn::CHILD;
use crate::crew::{MARKER, Post, SYSTEM_NAME};
use crate::labels;
use crate::loops;
use crate::roster;
use crate::swarm;
use crate::tally;

/// Number of samples of a running thread from which on its own function must appear in them. A
/// thread that hardly ran has few samples, and all may be from another stack, such as a
/// coroutine's. The samples that repeat them while the thread does not run say nothing new.
const TELLING_SAMPLES: usize = 20;

/// Whether the profile is symbolicated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Names {
    Yes,
    No,
}

/// A profile that was read back.
pub struct Proof {
    profile: Value,
    names: Names,
}

/// A function that appears only in stacks of one kind of threads.
struct Root {
    function: &'static str,
    kind: &'static str,
    /// Whether a thread runs the function before it registers, or without registering. Until then it
    /// is sampled under its system name, which it has from the worker that started it.
    is_of_unregistered: bool,
}

impl Root {
    fn is_of(&self, kind: &str) -> bool {
        self.kind == kind || self.is_of_unregistered && kind == SYSTEM_NAME
    }
}

/// Returns all roots. The index of a root is its bit in [`Stacks`].
fn roots() -> Vec<Root> {
    let root = |function, kind, is_of_unregistered| Root {
        function,
        kind,
        is_of_unregistered,
    };
    let of_crew = roster::roles().map(|role| root(role.root, role.name, false));
    of_crew
        .chain([
            root("::brood_body", CHILD, true),
            root("::killed_body", CHILD, true),
            root("::mayfly_body", swarm::CHILD, true),
            root("::reign", "control", false),
        ])
        .collect()
}

/// Returns the kind of a thread: `malloc` for `malloc-3`.
fn kind_of(thread: &str) -> &str {
    thread.rsplit_once('-').map_or(thread, |(kind, _)| kind)
}

/// Writes a profile as JSON and reads it.
pub fn read(profile: &Profile, names: Names) -> Proof {
    let mut text = Vec::new();
    let symbolicate = if names == Names::Yes {
        Symbolicate::Full
    } else {
        Symbolicate::No
    };
    let options = SnapshotOptions::default().symbolicate(symbolicate);
    profile
        .write_with(Format::Gecko, &mut text, &options)
        .expect("a vector never fails");
    let profile = serde_json::from_slice(&text)
        .unwrap_or_else(|error| panic!("cannot parse a profile as JSON: {error}"));
    tally::PROFILES_PARSED.one();
    if names == Names::Yes {
        tally::PROFILES_NAMED.one();
    }
    Proof { profile, names }
}

impl Proof {
    fn threads(&self) -> &[Value] {
        self.profile["threads"]
            .as_array()
            .map_or(&[], Vec::as_slice)
    }

    /// Returns the problems that any profile of the storm may have.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.threads().is_empty() {
            problems.push("there are no threads".to_owned());
        }
        for thread in self.threads() {
            match Stacks::read(thread) {
                Ok(stacks) => stacks.find_problems(self.names, &mut problems),
                Err(problem) => problems.push(format!("{}: {problem}", thread["name"])),
            }
        }
        problems
    }

    /// Returns the additional problems with threads that worked for the whole session.
    pub fn problems_with(&self, workers: &[Arc<Post>]) -> Vec<String> {
        let mut problems = self.problems();
        let roots = roots();
        let named: HashMap<&str, &Value> = self
            .threads()
            .iter()
            .filter_map(|thread| Some((thread["name"].as_str()?, thread)))
            .collect();
        let (mut expected, mut shown) = (0, 0);
        for post in workers {
            let name = post.name.as_str();
            let shows_root = post.role.is_some_and(|role| role.shows_root);
            let Some(thread) = named.get(name) else {
                problems.push(format!("{name} is not in the profile"));
                continue;
            };
            let Ok(stacks) = Stacks::read(thread) else {
                continue;
            };
            let own = roots
                .iter()
                .position(|root| root.kind == kind_of(name))
                .unwrap_or(0);
            let with_root = stacks
                .samples
                .iter()
                .filter(|sample| stacks.holds(sample.stack, own))
                .count();
            expected += usize::from(shows_root);
            shown += usize::from(shows_root && with_root > 0);
            let all = stacks.samples.len();
            let telling = stacks.samples.iter().filter(|sample| sample.ran).count();
            if shows_root && with_root == 0 && telling >= TELLING_SAMPLES {
                problems.push(format!(
                    "{name}: its own function is in none of its {telling} samples while it ran, and {all} in all; \
                     the most frequent stack while it ran:{}",
                    frequent_stack(thread)
                ));
            }
            if stacks.markers.is_empty() && !post.is_late() {
                problems.push(format!("{name} has no markers"));
            }
        }
        if shown * 4 < expected * 3 {
            problems.push(format!(
                "only {shown} of {expected} workers have their own function in their samples"
            ));
        }
        problems
    }

    pub fn samples(&self) -> usize {
        let length = |thread: &Value| thread["samples"]["data"].as_array().map_or(0, Vec::len);
        self.threads().iter().map(length).sum()
    }
}

/// Returns the outermost and innermost frames of the stack that most samples of a running thread
/// have, as text.
fn frequent_stack(thread: &Value) -> String {
    const SHOWN: usize = 8;
    let row = |table: &str, index: usize| &thread[table]["data"][index];
    let mut counts: HashMap<u64, usize> = HashMap::new();
    for sample in thread["samples"]["data"].as_array().into_iter().flatten() {
        if sample[3].as_u64() != Some(0) {
            *counts.entry(sample[0].as_u64().unwrap_or(0)).or_default() += 1;
        }
    }
    let Some((&most, count)) = counts.iter().max_by_key(|(_, count)| **count) else {
        return " none".to_owned();
    };
    let mut frames = Vec::new();
    let mut next = Some(most);
    while let Some(stack) = next {
        let stack = row("stackTable", stack as usize);
        let frame = row("frameTable", stack[1].as_u64().unwrap_or(0) as usize);
        let name = &thread["stringTable"][frame[0].as_u64().unwrap_or(0) as usize];
        frames.push(name.as_str().unwrap_or_default());
        next = stack[0].as_u64();
    }
    let left_out = frames.len().saturating_sub(2 * SHOWN);
    if left_out > 0 {
        frames.drain(SHOWN..SHOWN + left_out);
    }
    format!(
        " {count} of {} stacks, {left_out} frames left out, innermost first:\n    {}",
        counts.len(),
        frames.join("\n    ")
    )
}

/// A sample of a thread.
struct Sample {
    stack: Option<usize>,
    /// Whether the thread used the processor since the sample before.
    ran: bool,
}

/// A thread's tables, with the content of each stack.
struct Stacks<'a> {
    thread: &'a str,
    /// Roots in each stack: bit N stands for root N.
    roots: Vec<u64>,
    labeled: Vec<bool>,
    samples: Vec<Sample>,
    /// Number of samples with an event delay.
    delays: usize,
    /// The texts of the markers that workers add with each step.
    markers: Vec<&'a str>,
}

impl<'a> Stacks<'a> {
    fn read(thread: &'a Value) -> Result<Self, String> {
        let rows = |name: &str| {
            thread[name]["data"]
                .as_array()
                .ok_or_else(|| format!("no {name}"))
        };
        let strings = thread["stringTable"].as_array().ok_or("no stringTable")?;
        let string = |index: &Value| {
            let index = index
                .as_u64()
                .ok_or_else(|| format!("{index} is not the index of a string"))?;
            strings
                .get(index as usize)
                .and_then(Value::as_str)
                .ok_or_else(|| format!("no string {index}"))
        };
        let all_roots = roots();
        let mut frames = Vec::new();
        for frame in rows("frameTable")? {
            let location = string(&frame[0])?;
            let holds = |(bit, root): (usize, &Root)| {
                // The library may follow. A closure whose name contains the function's name may run
                // on another thread, and does not count.
                let function = root.function;
                let rest = location
                    .find(function)
                    .map(|at| &location[at + function.len()..]);
                let is_root = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(" (in "));
                u64::from(is_root) << bit
            };
            let roots = all_roots
                .iter()
                .enumerate()
                .map(holds)
                .fold(0, |all, one| all | one);
            frames.push((roots, location.starts_with(labels::PREFIX)));
        }
        let (mut of_stack, mut labeled): (Vec<u64>, Vec<bool>) = (Vec::new(), Vec::new());
        for (index, stack) in rows("stackTable")?.iter().enumerate() {
            let frame = stack[1]
                .as_u64()
                .and_then(|frame| frames.get(frame as usize));
            let (mut roots, mut label) =
                *frame.ok_or_else(|| format!("stack {index} has no frame"))?;
            if let Some(prefix) = stack[0].as_u64() {
                let prefix = prefix as usize;
                roots |= *of_stack
                    .get(prefix)
                    .ok_or_else(|| format!("stack {index} comes before its prefix"))?;
                label |= labeled[prefix];
            }
            of_stack.push(roots);
            labeled.push(label);
        }
        let (mut samples, mut delays) = (Vec::new(), 0);
        for sample in rows("samples")? {
            let stack = sample[0].as_u64().map(|stack| stack as usize);
            if stack.is_some_and(|stack| stack >= of_stack.len()) {
                return Err("a sample without its stack".to_owned());
            }
            if !sample[1].as_f64().is_some_and(|time| time >= 0.0) {
                return Err(format!("a sample at {}", sample[1]));
            }
            if sample[2].as_f64().is_some_and(|delay| delay < 0.0) {
                return Err(format!("an event delay of {}", sample[2]));
            }
            delays += usize::from(!sample[2].is_null());
            let ran = sample[3].as_u64() != Some(0);
            samples.push(Sample { stack, ran });
        }
        let mut markers = Vec::new();
        for marker in thread["markers"]["data"].as_array().ok_or("no markers")? {
            if string(&marker[0])? == MARKER {
                markers.push(string(&marker[5]["name"])?);
            }
        }
        let name = thread["name"].as_str().ok_or("no name")?;
        Ok(Self {
            thread: name,
            roots: of_stack,
            labeled,
            samples,
            delays,
            markers,
        })
    }

    fn holds(&self, stack: Option<usize>, root: usize) -> bool {
        stack.is_some_and(|stack| self.roots[stack] & 1 << root != 0)
    }

    fn find_problems(&self, names: Names, problems: &mut Vec<String>) {
        let name = self.thread;
        if let Some(text) = self.markers.iter().find(|text| **text != name) {
            problems.push(format!("{name} has a marker of {text}"));
        }
        let kind = kind_of(name);
        if kind != "label" && self.labeled.contains(&true) {
            problems.push(format!("{name} has labels, and pushes none"));
        }
        if kind != loops::KIND && self.delays > 0 {
            problems.push(format!(
                "{name} has an event loop in {} samples",
                self.delays
            ));
        }
        if names == Names::No {
            return;
        }
        let roots = roots();
        let foreign = roots
            .iter()
            .enumerate()
            .filter(|(_, root)| !root.is_of(kind));
        for (bit, root) in foreign {
            let stacks = self
                .samples
                .iter()
                .filter(|sample| self.holds(sample.stack, bit))
                .count();
            if stacks > 0 {
                problems.push(format!(
                    "{name} has {} of {} in {stacks} of its samples",
                    root.function, root.kind
                ));
            }
        }
    }
}
