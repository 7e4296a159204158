//! `symbolicate`: time and memory to name 10,000 addresses of a large program: this one, with all
//! its debug information.
//!
//! The addresses are spread evenly over the code, so nearly each is in a function of its own, and
//! they need nearly all compilation units. In a profile, many are in one function. So this is a
//! hard case for every arm alike.
//!
//! `ours` is the lookup of a first save, in full: inlined functions, files and lines. `ours_names`
//! is that of `Symbolicate::NamesOnly`. The peers in full: `samply_symbols`, with which wholesym
//! reads files, `blazesym`, and the program `addr2line` of this system (`llvm_addr2line` likewise).
//! `blazesym_names` reads no debug information.
//!
//! `eager` resolves each frame of each sample with `backtrace::resolve`, as a profiler does that
//! names its samples when it takes them. There are 10,000 samples of 20 frames: 10 s of one busy
//! thread at 1,000 Hz. Each address occurs in 20 of these frames. `eager_once` resolves each
//! address once.
//!
//! A figure is the time from the first step, the opening of the file, to the last name in memory.
//! Of `addr2line`, it is the time of its process, which writes the names to a file. Each run is a
//! process of its own. The file is in the system's cache. Every arm has to name one function that
//! is known here, so that none looks up wrong addresses.
//!
//! `…_memory_mb` is the peak of the process's anonymous memory, in MB: all memory except for mapped
//! files. It is read every 2 ms.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::machine::{self, load_note};
use crate::memory::{self, Watched};
use crate::own_program::OwnProgram;
use crate::report::{Arm, Report};
use crate::symbolicate_arms::{ADDRESSES, ARMS, Answer, FRAMES_PER_ADDRESS, addresses_in};
use crate::{Effort, Outcome, child};

/// The programs, with the names of their arms and of their memory.
const PROGRAMS: [(&str, &str); 2] = [
    ("addr2line", "addr2line"),
    ("llvm_addr2line", "llvm-addr2line"),
];
/// Arms that are not compared with `ours`, which resolves each address once, and in full.
const EXTRA: [&str; 3] = ["ours_names", "blazesym_names", "eager_once"];
const MIN_DEBUG_BYTES: u64 = 50_000_000;
const GOAL_FASTER: f64 = 10.0;
const GOAL_MEMORY_MB: f64 = 100.0;
/// Maximum time of one run of a program.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(300);
const QUICK_PROGRAM_TIMEOUT: Duration = Duration::from_secs(8);

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, timeout) = if effort.quick {
        (1, QUICK_PROGRAM_TIMEOUT)
    } else {
        (5, PROGRAM_TIMEOUT)
    };
    let program = OwnProgram::read()?;
    let mut figures = Figures::default();
    let mut notes = vec![format!(
        "{rounds} rounds, each arm a process; {ADDRESSES} addresses, {} frames for eager; {:.1} MB of code, {:.1} MB of \
         debug information; {}",
        ADDRESSES * FRAMES_PER_ADDRESS,
        (program.text.end - program.text.start) as f64 / 1e6,
        program.debug_bytes as f64 / 1e6,
        load_note()
    )];
    if program.debug_bytes < MIN_DEBUG_BYTES {
        notes.push(format!(
            "the goal applies to at least {MIN_DEBUG_BYTES} bytes of debug information"
        ));
    }
    for round in 1..=rounds {
        let (named, taken) =
            machine::watch(|| run_round(&program, timeout, &mut figures, &mut notes));
        notes.push(format!(
            "round {round}: named addresses / functions: {}; CPUs used by other processes + the hypervisor: {taken}",
            named?.join(", ")
        ));
    }
    let [ours, ours_names, blazesym_names, eager] =
        ["ours", "ours_names", "blazesym_names", "eager"].map(|name| figures.seconds(name));
    notes.push(format!(
        "eager takes {:.1} times as long as ours, and {:.1} times as long as ours_names",
        eager / ours,
        eager / ours_names
    ));
    let best = figures.best_peer();
    let met = eager / ours >= GOAL_FASTER
        && ours <= best
        && ours_names <= blazesym_names
        && figures.memory_mb("ours") <= GOAL_MEMORY_MB
        && figures.memory_mb("ours_names") <= GOAL_MEMORY_MB;
    let (ours, peers) = figures.into_arms()?;
    Ok(Report {
        unit: "seconds to name 10,000 addresses (`…_memory_mb`: MB of anonymous memory)",
        ours,
        peers,
        floor: None,
        better: f64::min,
        goal: "ours 10 times faster than eager and no slower than the best peer, ours_names no slower than \
               blazesym_names, and their memory <= 100 MB",
        met,
        notes,
    })
}

/// Runs each arm once. Returns a description of what each has named.
fn run_round(
    program: &OwnProgram,
    timeout: Duration,
    figures: &mut Figures,
    notes: &mut Vec<String>,
) -> Result<Vec<String>, Box<dyn Error>> {
    let mut named = Vec::new();
    for (arm, _) in ARMS {
        let text = &program.text;
        let arguments = [arm.to_owned(), text.start.to_string(), text.end.to_string()];
        let (answer, watched) = child::run_watched("symbolicate", &arguments)?;
        let seconds = answer["seconds"]
            .as_f64()
            .ok_or("the child's answer lacks the time")?;
        figures.add(arm, seconds, watched.anonymous_bytes);
        named.push(format!(
            "{arm} {}",
            answer["note"].as_str().unwrap_or_default()
        ));
    }
    for (arm, command) in PROGRAMS {
        match run_program(command, program, timeout) {
            Ok((watched, answer)) => {
                figures.add(arm, watched.seconds, watched.anonymous_bytes);
                named.push(format!("{arm} {}", answer.describe()));
            }
            Err(error) => notes.push(format!("cannot run {command}: {error}")),
        }
    }
    Ok(named)
}

/// Runs a program in the manner of `addr2line` on the same addresses.
fn run_program(
    command: &str,
    program: &OwnProgram,
    timeout: Duration,
) -> Result<(Watched, Answer), Box<dyn Error>> {
    let folder = std::env::temp_dir();
    let file = |end: &str| folder.join(format!("gekkota-peers-{}-{end}", std::process::id()));
    let (input, output) = (file("addresses"), file("names"));
    let run = || -> Result<(Watched, Answer), Box<dyn Error>> {
        let mut text = String::new();
        for address in addresses_in(&program.text)? {
            text.push_str(&format!("{address:#x}\n"));
        }
        std::fs::write(&input, text)?;
        let mut child = Command::new(command)
            // Functions with inlined ones, demangled; each address before its names.
            .args(["-a", "-f", "-i", "-C", "-e"])
            .arg(&program.path)
            .stdin(File::open(&input)?)
            .stdout(File::create(&output)?)
            .stderr(Stdio::null())
            .spawn()?;
        let watched = memory::watch(&mut child, timeout)?;
        let status = child.wait()?;
        if !status.success() {
            return Err(format!("it ended with {status}").into());
        }
        let answer = read_names(&output)?;
        answer.check()?;
        Ok((watched, answer))
    };
    let result = run();
    for path in [input, output] {
        // A file that was not created cannot be removed.
        let _ = std::fs::remove_file(path);
    }
    result
}

/// Reads what a program printed: for each address, the address, and a line with the name and one
/// with the place of each function.
fn read_names(path: &Path) -> Result<Answer, Box<dyn Error>> {
    let text = std::fs::read(path)?;
    let text = String::from_utf8_lossy(&text);
    let mut answer = Answer::default();
    let mut functions: Vec<&str> = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if !line.starts_with("0x") {
            if line != "??" {
                functions.push(line);
            }
            lines.next();
        }
        if lines.peek().is_none_or(|next| next.starts_with("0x")) {
            answer.add(functions.drain(..));
        }
    }
    Ok(answer)
}

/// The runs of all arms: seconds, and the memory in MB.
#[derive(Default)]
struct Figures(BTreeMap<&'static str, (Vec<f64>, Vec<f64>)>);

impl Figures {
    fn add(&mut self, arm: &'static str, seconds: f64, anonymous_bytes: u64) {
        let (times, memory) = self.0.entry(arm).or_default();
        times.push(seconds);
        memory.push(anonymous_bytes as f64 / 1e6);
    }

    fn seconds(&self, arm: &str) -> f64 {
        let runs = self.0.get(arm);
        runs.map_or(f64::NAN, |(times, _)| crate::report::median(times))
    }

    fn memory_mb(&self, arm: &str) -> f64 {
        let runs = self.0.get(arm);
        runs.map_or(f64::NAN, |(_, memory)| crate::report::median(memory))
    }

    fn best_peer(&self) -> f64 {
        let peers = self
            .0
            .keys()
            .filter(|arm| **arm != "ours" && !EXTRA.contains(arm));
        peers
            .map(|arm| self.seconds(arm))
            .fold(f64::INFINITY, f64::min)
    }

    /// Returns `ours`, and the other arms in the order of their names, with their memory at the
    /// end.
    fn into_arms(mut self) -> Result<(Arm, Vec<Arm>), &'static str> {
        let (times, own_memory) = self.0.remove("ours").ok_or("ours was not measured")?;
        let ours = Arm {
            runs: times,
            ..Arm::new("ours")
        };
        let memory_arm = |arm: &str, runs| Arm {
            runs,
            // An arm's name lives as long as the program.
            ..Arm::extra(String::leak(format!("{arm}_memory_mb")))
        };
        let mut memory_arms = vec![memory_arm("ours", own_memory)];
        let mut arms = Vec::new();
        for (name, (runs, memory)) in self.0 {
            arms.push(Arm {
                runs,
                extra: EXTRA.contains(&name),
                ..Arm::new(name)
            });
            memory_arms.push(memory_arm(name, memory));
        }
        arms.extend(memory_arms);
        Ok((ours, arms))
    }
}

/// Runs one arm in the child process. Arguments: the arm, and the start and the end of the code, as
/// addresses in the file.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [arm, start, end] = arguments else {
        return Err("expected an arm and the range of the code".into());
    };
    let (_, run) = ARMS
        .iter()
        .find(|(name, _)| name == arm)
        .ok_or_else(|| format!("unknown arm `{arm}`"))?;
    let addresses = addresses_in(&(start.parse()?..end.parse()?))?;
    let (time, answer) = run(&addresses)?;
    answer.check()?;
    Ok(json!({"seconds": time.as_secs_f64(), "note": answer.describe()}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_names_counts_addresses_and_functions() {
        let path = std::env::temp_dir().join(format!("gekkota-peers-{}-test", std::process::id()));
        let text = "0x10\none\na.rs:1\ntwo\nb.rs:2\n0x20\n??\n??:0\n0x30\nthree\n??:?\n";
        std::fs::write(&path, text).expect("written");
        let answer = read_names(&path).expect("read");
        std::fs::remove_file(&path).expect("removed");
        assert_eq!((answer.named, answer.functions), (2, 3));
        assert!(answer.check().is_err(), "the known function is missing");
    }

    #[test]
    fn best_peer_is_the_fastest_that_does_the_same() {
        let mut figures = Figures::default();
        for (arm, seconds) in [
            ("ours", 1.0),
            ("eager", 9.0),
            ("samply_symbols", 2.0),
            ("eager_once", 0.1),
        ] {
            figures.add(arm, seconds, 1_000_000);
        }
        assert_eq!(figures.best_peer(), 2.0);
        let (ours, others) = figures.into_arms().expect("ours");
        assert_eq!(ours.runs, [1.0]);
        let names: Vec<&str> = others.iter().map(|arm| arm.name).collect();
        assert_eq!(
            names[..4],
            ["eager", "eager_once", "samply_symbols", "ours_memory_mb"]
        );
    }
}
