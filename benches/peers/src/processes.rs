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

use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use gekkota::process::{profiler_command, profiler_wait_for_children};
use gekkota::profile::SnapshotOptions;
use gekkota::{
    AutoProfilerInit, MarkerOptions, ProfilingCategoryPair, StartParams, add_text_marker,
    profiler_start, profiler_stream_json, register_thread,
};
use serde_json::{Value, json};

use crate::busy::SharedWork;
use crate::machine::{self, load_note};
use crate::raw::process_cpu_ns;
use crate::report::{Arm, Report};
use crate::{Effort, Outcome, child};

const PART: &str = "processes";
const CHILDREN: usize = 16;
const GOAL_GATHER: f64 = 1.5;
const GOAL_COST: f64 = 1.05;
/// Number of markers whose JSON has about 10 MB.
const MARKERS: usize = 120_000;
const MAX_UNTIL_JOINED: Duration = Duration::from_secs(30);

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, portions, idle_ms) = match effort.quick {
        true => (2, 2_000, 1_500),
        false => (7, 10_000, 5_000),
    };
    let (mut ours, mut alone) = (Arm::new("ours"), Arm::new("alone"));
    let [mut idle, mut idle_alone] = ["idle", "idle_alone"].map(Arm::extra);
    let [mut gather, mut gather_one, mut gather_sum] =
        ["gather", "gather_one", "gather_sum"].map(Arm::extra);
    let mut notes = vec![format!(
        "{rounds} rounds per arm, interleaved: {portions} portions of work, {idle_ms} ms of sleep, {CHILDREN} children with \
         {MARKERS} markers; {}",
        load_note()
    )];
    let processors = std::thread::available_parallelism()?.get() as f64;
    for round in 1..=rounds {
        for (kind, active, asleep) in [
            ("family", &mut ours, &mut idle),
            ("alone", &mut alone, &mut idle_alone),
        ] {
            let (run, taken) = machine::watch(|| run(kind, 1, "work", portions));
            active.runs.push(number(&run?, "cpu_ms"));
            let run = run_sleeping(kind, idle_ms)?;
            asleep.runs.push(run);
            notes.push(format!(
                "round {round}: {kind}: CPUs used by other processes + the hypervisor: {taken}"
            ));
        }
        let one = run("family", 1, "fill", MARKERS)?;
        let all = run("family", CHILDREN, "fill", MARKERS)?;
        let one_ms = number(&one, "gather_ms");
        gather_one.runs.push(one_ms);
        gather.runs.push(number(&all, "gather_ms"));
        gather_sum.runs.push(one_ms * CHILDREN as f64 / processors);
        notes.push(format!(
            "round {round}: {:.1} MB of one child, {:.1} MB of {CHILDREN} children",
            number(&one, "mb"),
            number(&all, "mb"),
        ));
    }
    let met = ours.figure() <= GOAL_COST * alone.figure()
        && gather.figure() <= GOAL_GATHER * gather_one.figure();
    Ok(Report {
        unit: "CPU time of a child for its work, in ms; `idle…`: of one whose thread sleeps, in % of one CPU; `gather…`: time \
               to write a profile with its children, in ms",
        ours,
        peers: vec![alone, idle, idle_alone, gather, gather_one, gather_sum],
        floor: None,
        better: f64::min,
        goal: "ours <= 1.05 × alone, and gather <= 1.5 × gather_one",
        met,
        notes,
    })
}

fn number(run: &Value, name: &str) -> f64 {
    run[name].as_f64().unwrap_or(f64::NAN)
}

fn run(kind: &str, children: usize, job: &str, size: usize) -> Result<Value, Box<dyn Error>> {
    let arguments = [
        "parent",
        kind,
        &children.to_string(),
        job,
        &size.to_string(),
    ];
    child::run(PART, &arguments.map(str::to_owned))
}

/// Returns the CPU time of a child that sleeps, in percent.
fn run_sleeping(kind: &str, idle_ms: usize) -> Result<f64, Box<dyn Error>> {
    let run = run(kind, 1, "sleep", idle_ms)?;
    Ok(number(&run, "cpu_ms") / idle_ms as f64 * 100.0)
}

/// Runs a parent or a child of it. Arguments: the role, whether the child is in the parent's family or
/// alone, for a parent the number of children, the job of a child, and its size.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    match arguments {
        [role, kind, children, job, size] if role == "parent" => {
            run_parent(kind, children.parse()?, job, size)
        }
        [role, kind, job, size] if role == "worker" => run_worker(kind, job, size.parse()?),
        _ => Err("expected a role and its arguments".into()),
    }
}

/// A child process, which reports on its standard output and goes on when it gets a line.
struct Worker {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn spawn(kind: &str, job: &str, size: &str) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([child::FLAG, PART, "worker", kind, job, size]);
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

    fn line(&mut self) -> Result<String, Box<dyn Error>> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line)
    }
}

fn run_parent(kind: &str, children: usize, job: &str, size: &str) -> Result<Value, Box<dyn Error>> {
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
        let mut text = Counted(0);
        let options = SnapshotOptions::default().child_timeout(MAX_UNTIL_JOINED);
        let begin = Instant::now();
        profiler_stream_json(&mut text, &options)?;
        answer["gather_ms"] = json!(begin.elapsed().as_secs_f64() * 1e3);
        answer["mb"] = json!(text.0 as f64 / 1e6);
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

/// Counts the bytes that are written.
struct Counted(usize);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn run_worker(kind: &str, job: &str, size: usize) -> Result<Value, Box<dyn Error>> {
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
