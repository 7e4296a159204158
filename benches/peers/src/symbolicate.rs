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
//! thread at 1,000 Hz. Each address occurs in 20 of these frames.
//!
//! A figure is the time from the first step, the opening of the file, to the last name in memory.
//! Of `addr2line`, it is the time of its process, which writes the names to a file. Each run is a
//! process of its own. The file is in the system's cache. Every arm has to name one function that
//! is known here, so that none looks up wrong addresses.
//!
//! `…_memory_mb` is the peak of the process's anonymous memory, in MB: all memory except for mapped
//! files. It is read every 2 ms.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::memory::{self, Watched};
use crate::own_program::OwnProgram;
use crate::prelude::*;
use crate::symbolicate_arms::{ADDRESSES, ARMS, Answer, addresses_in};

/// The programs, with the names of their arms.
const PROGRAMS: [(&str, &str); 2] = [
    ("addr2line", "addr2line"),
    ("llvm_addr2line", "llvm-addr2line"),
];

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "symbolicate",
    unit: "seconds to name 10,000 addresses (`…_memory_mb`: MB of anonymous memory)",
    goal: "ours 10 times faster than eager and no slower than the best peer, ours_names no slower than \
           blazesym_names, and their memory <= 100 MB, with at least 50 MB of debug information",
    // `blazesym_names` does not resolve in full.
    peers: &[
        "samply_symbols",
        "blazesym",
        "eager",
        "addr2line",
        "llvm_addr2line",
    ],
    is_met: |study| {
        let mut peers = MEASUREMENT.peers.iter().map(|peer| study.figure(peer));
        study.at_most(&["ours"], study.figure("eager") / 10.0)
            // A peer without a figure does not count.
            && peers.all(|peer| peer.is_nan() || study.figure("ours") <= peer)
            && study.at_most(&["ours_names"], study.figure("blazesym_names"))
            && study.at_most(&["ours_memory_mb", "ours_names_memory_mb"], 100.0)
    },
    measure: |study| {
        let timeout = Duration::from_secs(study.pick(8, 300));
        let program = OwnProgram::read()?;
        let about = format!(
            "each arm a process; {ADDRESSES} addresses; {:.1} MB of code, {:.1} MB of debug information",
            (program.text.end - program.text.start) as f64 / 1e6,
            program.debug_bytes as f64 / 1e6,
        );
        study.rounds(study.pick(1, 5), about, |study, _| {
            run_round(study, &program, timeout)
        })
    },
    part: run,
    ..Measurement::LONG
};

/// Runs each arm once.
fn run_round(study: &mut Study, program: &OwnProgram, timeout: Duration) -> Fallible<()> {
    let add = |study: &mut Study, arm: &str, seconds: f64, watched: &Watched| {
        study.push(arm, seconds);
        let mb = watched.anonymous_bytes as f64 / 1e6;
        study.push(&format!("{arm}_memory_mb"), mb);
    };
    for (arm, _) in ARMS {
        let text = &program.text;
        let arguments: [&dyn std::fmt::Display; 3] = [&arm, &text.start, &text.end];
        let (answer, watched) = child::run_watched(&MEASUREMENT, &arguments)?;
        add(study, arm, number(&answer, "seconds")?, &watched);
    }
    for (arm, command) in PROGRAMS {
        match run_program(command, program, timeout) {
            Ok(watched) => add(study, arm, watched.seconds, &watched),
            Err(error) => study.note(format!("cannot run {command}: {error}")),
        }
    }
    Ok(())
}

/// Runs a program in the manner of `addr2line` on the same addresses.
fn run_program(command: &str, program: &OwnProgram, timeout: Duration) -> Fallible<Watched> {
    let (input, output) = (Temporary::new("-addresses"), Temporary::new("-names"));
    let mut text = String::new();
    for address in addresses_in(&program.text)? {
        text.push_str(&format!("{address:#x}\n"));
    }
    std::fs::write(&*input, text)?;
    let mut child = Command::new(command)
        // Functions with inlined ones, demangled; each address before its names.
        .args(["-a", "-f", "-i", "-C", "-e"])
        .arg(&program.path)
        .stdin(File::open(&*input)?)
        .stdout(File::create(&*output)?)
        .stderr(Stdio::null())
        .spawn()?;
    let watched = memory::watch(&mut child, timeout)?;
    let status = child.wait()?;
    if !status.success() {
        return Err(format!("it ended with {status}").into());
    }
    read_names(&output)?.check()?;
    Ok(watched)
}

/// Reads what a program printed: for each address, the address, and a line with the name and one
/// with the place of each function.
fn read_names(path: &Path) -> Fallible<Answer> {
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

/// Runs one arm. Arguments: the arm, and the start and the end of the code, as addresses in the file.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let arm = arguments.text(0)?;
    let found = ARMS.iter().find(|(name, _)| *name == arm);
    let (_, name_all) = found.ok_or_else(|| format!("unknown arm `{arm}`"))?;
    let addresses = addresses_in(&(arguments.get(1)?..arguments.get(2)?))?;
    let (time, answer) = name_all(&addresses)?;
    answer.check()?;
    Ok(json!({ "seconds": time.as_secs_f64() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_names_counts_addresses_and_functions() {
        let path = Temporary::new("-test");
        let text = "0x10\none\na.rs:1\ntwo\nb.rs:2\n0x20\n??\n??:0\n0x30\nthree\n??:?\n";
        std::fs::write(&*path, text).expect("written");
        let answer = read_names(&path).expect("read");
        assert_eq!((answer.named, answer.functions), (2, 3));
        assert!(answer.check().is_err(), "the known function is missing");
    }
}
