//! `processes`: what it costs a child process to take part in its parent's session, and how long it takes
//! to gather the children's profiles.
//!
//! - `ours` is the CPU time of a child that does a fixed amount of work while it takes part in the
//!   session of its parent, in ms. `alone` is that of the same program with a session of its own.
//! - `idle` is the CPU time of a child whose only thread sleeps, in percent of one processor, and
//!   `idle_alone` that with a session of its own.
//! - `gather` is the time to write the profile of a parent with 16 children of about 10 MB each, in ms,
//!   and `gather_one` that with one such child. `gather_sum` is `gather_one` × 16 divided by the number
//!   of processors: what the work alone takes.
//!
//! Each run is a parent process of its own; the arms are interleaved.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use gekkota::process::{profiler_command, profiler_wait_for_children};
use gekkota::profile::SnapshotOptions;
use gekkota::{
    AutoProfilerInit, MarkerOptions, ProfilingCategoryPair, add_text_marker, profiler_start,
    profiler_stream_json,
};

use crate::busy::SharedWork;
use crate::prelude::*;
use crate::raw::process_cpu_ns;
use crate::recording::CountingSink;

const CHILDREN: usize = 16;
/// Number of markers whose JSON has about 10 MB.
const MARKERS: usize = 120_000;
const MAX_UNTIL_JOINED: Duration = Duration::from_secs(30);

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "processes",
    unit: "CPU time of a child for its work, in ms; `idle…`: of one whose thread sleeps, in % of one CPU; `gather…`: time \
           to write a profile with its children, in ms",
    goal: "ours <= 1.05 × alone, and gather <= 1.5 × gather_one",
    peers: &["alone"],
    is_met: |study| {
        study.at_most(&["ours"], 1.05 * study.figure("alone"))
            && study.at_most(&["gather"], 1.5 * study.figure("gather_one"))
    },
    measure: |study| {
        let (portions, idle_ms) = study.pick((2_000, 1_500), (10_000, 5_000));
        let processors = std::thread::available_parallelism()?.get() as f64;
        let about = format!(
            "{portions} portions of work, {idle_ms} ms of sleep, {CHILDREN} children with {MARKERS} markers"
        );
        study.rounds(study.pick(2, 7), about, |study, _| {
            let run = |kind: &str, children: usize, job: &str, size: usize| {
                child::run("processes", &[&"parent", &kind, &children, &job, &size])
            };
            for (kind, active, asleep) in
                [("family", "ours", "idle"), ("alone", "alone", "idle_alone")]
            {
                study.push(active, number(&run(kind, 1, "work", portions)?, "cpu_ms")?);
                let sleeping = number(&run(kind, 1, "sleep", idle_ms)?, "cpu_ms")?;
                study.push(asleep, sleeping / idle_ms as f64 * 100.0);
            }
            let one = run("family", 1, "fill", MARKERS)?;
            let all = run("family", CHILDREN, "fill", MARKERS)?;
            let one_ms = number(&one, "gather_ms")?;
            study.push("gather", number(&all, "gather_ms")?);
            study.push("gather_one", one_ms);
            study.push("gather_sum", one_ms * CHILDREN as f64 / processors);
            study.push("gather_one_mb", number(&one, "mb")?);
            Ok(())
        })
    },
    part: run_part,
    ..Measurement::LONG
};

/// Runs a parent or a child of it. Arguments: the role, whether the child is in the parent's family or
/// alone, for a parent the number of children, the job of a child, and its size.
fn run_part(arguments: &Arguments) -> Fallible<Value> {
    let kind = arguments.text(1)?;
    match arguments.text(0)? {
        "parent" => run_parent(
            kind,
            arguments.get(2)?,
            arguments.text(3)?,
            arguments.text(4)?,
        ),
        _ => run_worker(kind, arguments.text(2)?, arguments.get(3)?),
    }
}

/// A child process, which reports on its standard output and continues when it gets a line.
struct Worker {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn spawn(kind: &str, job: &str, size: &str) -> Fallible<Self> {
        let mut command = child::command("processes", &[&"worker", &kind, &job, &size])?;
        if kind == "family" {
            profiler_command(&mut command);
        }
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let (input, output) = (process.stdin.take(), process.stdout.take());
        Ok(Self {
            process,
            input: input.ok_or("no pipe")?,
            output: BufReader::new(output.ok_or("no pipe")?),
        })
    }

    fn line(&mut self) -> Fallible<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line)
    }
}

fn run_parent(kind: &str, children: usize, job: &str, size: &str) -> Fallible<Value> {
    let _profiler = AutoProfilerInit::new();
    let is_family = kind == "family";
    if is_family {
        // Each child gets its share of the capacity.
        let params = StartParams::default()
            .capacity_bytes(1 << 30)
            .children(true);
        profiler_start(params)?;
    }
    let mut workers = Vec::new();
    for _ in 0..children {
        workers.push(Worker::spawn(kind, job, size)?);
    }
    let begin = Instant::now();
    while is_family && profiler_wait_for_children(MAX_UNTIL_JOINED) < children {
        if begin.elapsed() > MAX_UNTIL_JOINED {
            return Err("not all children have joined".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    for worker in &mut workers {
        writeln!(worker.input, "go")?;
    }
    let mut cpu_ms = 0.0;
    for worker in &mut workers {
        cpu_ms = worker.line()?.trim().parse()?;
    }
    let mut answer = json!({"cpu_ms": cpu_ms});
    if job == "fill" {
        let mut text = CountingSink::default();
        let options = SnapshotOptions::default().child_timeout(MAX_UNTIL_JOINED);
        let begin = Instant::now();
        profiler_stream_json(&mut text, &options)?;
        answer["gather_ms"] = json!(begin.elapsed().as_secs_f64() * 1e3);
        answer["mb"] = json!(text.bytes as f64 / 1e6);
    }
    for Worker {
        mut process, input, ..
    } in workers
    {
        // Without the profile that it would send at its end.
        process.kill()?;
        drop(input);
        process.wait()?;
    }
    Ok(answer)
}

fn run_worker(kind: &str, job: &str, size: usize) -> Fallible<Value> {
    let _profiler = AutoProfilerInit::new();
    if kind == "alone" {
        profiler_start(StartParams::default())?;
    }
    register_thread("worker");
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    let before_ns = process_cpu_ns();
    match job {
        "work" => _ = std::hint::black_box(SharedWork::new(size as u64).take_part()),
        "sleep" => std::thread::sleep(Duration::from_millis(size as u64)),
        "fill" => {
            for number in 0..size {
                let text = format!("what this marker is about: {number}");
                let category = ProfilingCategoryPair::Other(None);
                add_text_marker("Filled", category, MarkerOptions::default(), &text);
            }
        }
        _ => return Err("expected a job".into()),
    }
    let cpu_ms = (process_cpu_ns() - before_ns) as f64 / 1e6;
    println!("{cpu_ms}");
    io::stdout().flush()?;
    // Until the parent has what it wants.
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(json!({}))
}
