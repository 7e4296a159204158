//! `always_on`: what a profiler that always runs costs a server under load.
//!
//! The server has four threads, each with a connection. A request takes about 0.2 ms of computing.
//! Another process has four clients, which send the next request as soon as they have the answer, so
//! both processors are taken. Each run has a server of its own. The arms of a round run one after
//! another, and the starting arm rotates.
//!
//! - Each client runs on the processor of its server's thread. If the kernel may choose, it stays for
//!   seconds with one of two arrangements, in which a client runs on its server's processor or not:
//!   the second has 3 % fewer requests and a p99 that is longer by half, with any profiler and without
//!   one. The arms `…_free` are without this rule, compared with `none_free`.
//! - `ours` has the parameters of `StartParams::always_on`: it samples all threads at 100 Hz by wall
//!   time, and each request has a context with the ids of a trace and a span and a label. `pprof` is
//!   pprof-rs at 100 Hz, which samples by CPU time and knows no requests. `pyroscope` is pyroscope-rs,
//!   which does the same, and sends a profile to a store in each tenth second of the clock, so that only
//!   some runs have one. Its server is a separate package, which the first run builds. `none_again` is
//!   a second run without a profiler: the noise.
//! - The figures are the requests a second that are missing, in percent of those without a profiler
//!   in the same round. `…_p99` is by how many percent the p99 of the answers is longer. `…_cpu` is by
//!   how many percent a request takes more CPU time of the server, the profiler's threads included.

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use gekkota::context::ProfilerContext;
use gekkota::{ProfilerSession, StartParams, register_thread};
use serde_json::{Value, json};

use crate::machine::{self, load_note};
use crate::raw_threads::pin_to;
use crate::report::{Arm, Report};
use crate::serving::{self, ANSWER};
use crate::{Effort, Outcome, built, child, store};

type Fallible<T> = Result<T, Box<dyn Error>>;

const HZ: u32 = 100;
/// Time before the measurement, in which caches get warm.
const WARM_UP: Duration = Duration::from_millis(500);
const GOAL_PERCENT: f64 = 1.0;

/// What an arm is compared with: the places of `none` and `none_free` in the list of runs.
const NONE: usize = 6;
const NONE_FREE: usize = 7;
const RUNS: usize = 8;

/// The arms but those without a profiler: with each, the names of its figures, and what it is
/// compared with.
const ARMS: [(&str, [&str; 3], usize); NONE] = [
    ("ours", ["ours", "ours_p99", "ours_cpu"], NONE),
    ("pprof", ["pprof", "pprof_p99", "pprof_cpu"], NONE),
    (
        "pyroscope",
        ["pyroscope", "pyroscope_p99", "pyroscope_cpu"],
        NONE,
    ),
    (
        "none_again",
        ["none_again", "none_again_p99", "none_again_cpu"],
        NONE,
    ),
    (
        "ours_free",
        ["ours_free", "ours_free_p99", "ours_free_cpu"],
        NONE_FREE,
    ),
    (
        "pprof_free",
        ["pprof_free", "pprof_free_p99", "pprof_free_cpu"],
        NONE_FREE,
    ),
];

/// Returns the name of the arm of a run.
fn arm_at(place: usize) -> &'static str {
    match ARMS.get(place) {
        Some((name, ..)) => name,
        None if place == NONE => "none",
        None => "none_free",
    }
}

/// What a run has measured.
struct Run {
    requests_a_second: f64,
    p99_us: f64,
    cpu_us: f64,
}

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, seconds) = if effort.quick { (1, 3) } else { (15, 4) };
    let mut figures = ARMS.map(|(_, names, _)| names.map(Arm::extra));
    figures[0][0].extra = false;
    figures[1][0].extra = false;
    figures[2][0].extra = false;
    let pyroscope = (build_pyroscope_server()?, store::start(|_| {})?);
    let mut notes = vec![format!(
        "{rounds} rounds, {seconds} s for each arm; {}",
        load_note()
    )];
    for round in 0..rounds {
        let mut runs: [Option<Run>; RUNS] = Default::default();
        let (ran, taken) = machine::watch(|| -> Fallible<()> {
            for turn in 0..RUNS {
                let place = (round + turn) % RUNS;
                runs[place] = Some(run(arm_at(place), seconds, &pyroscope)?);
            }
            Ok(())
        });
        ran?;
        let run_at = |place: usize| runs[place].as_ref().ok_or("an arm has not run");
        for (place, (figures, (_, _, base))) in figures.iter_mut().zip(ARMS).enumerate() {
            let (run, none) = (run_at(place)?, run_at(base)?);
            let percent = |more: f64| more * 100.0;
            figures[0].runs.push(percent(
                1.0 - run.requests_a_second / none.requests_a_second,
            ));
            figures[1]
                .runs
                .push(percent(run.p99_us / none.p99_us - 1.0));
            figures[2]
                .runs
                .push(percent(run.cpu_us / none.cpu_us - 1.0));
        }
        let none = run_at(NONE)?;
        notes.push(format!(
            "round {}: without a profiler {:.0} requests a second, p99 {:.0} µs, {:.0} µs of CPU time each; CPUs used by other \
             processes, the clients included, + the hypervisor: {taken}",
            round + 1,
            none.requests_a_second,
            none.p99_us,
            none.cpu_us,
        ));
    }
    let [
        [ours, ours_p99, ours_cpu],
        [pprof, pprof_p99, pprof_cpu],
        [pyroscope, pyroscope_p99, pyroscope_cpu],
        others @ ..,
    ] = figures;
    let least = pprof.figure().min(pyroscope.figure());
    let met = ours.figure() <= GOAL_PERCENT && ours.figure() <= least;
    let mut peers = vec![pprof, pprof_p99, pprof_cpu];
    peers.extend([pyroscope, pyroscope_p99, pyroscope_cpu, ours_p99, ours_cpu]);
    peers.extend(others.into_iter().flatten());
    Ok(Report {
        unit: "% of the requests a second that are missing; `…_p99`: longer by %; `…_cpu`: % more CPU time for a request",
        ours,
        peers,
        floor: None,
        better: f64::min,
        goal: "ours <= 1 %, and no more than pprof and pyroscope",
        met,
        notes,
    })
}

/// Runs an arm. `pyroscope` is the server with pyroscope-rs, and the address of its store.
fn run(arm: &str, seconds: u64, pyroscope: &(PathBuf, String)) -> Fallible<Run> {
    let seconds = seconds.to_string();
    let answer = match profiler_of(arm) {
        ("pyroscope", is_free) => {
            let (server, store) = pyroscope;
            let mut command = Command::new(server);
            command
                .arg(std::env::current_exe()?)
                .args([&seconds, &is_free.to_string(), store]);
            serde_json::from_str(&built::run(command)?.0)?
        }
        _ => child::run("always_on", &[arm.to_owned(), seconds])?,
    };
    let number = |key: &str| {
        answer[key]
            .as_f64()
            .ok_or("the child's answer lacks a figure")
    };
    Ok(Run {
        requests_a_second: number("requests_a_second")?,
        p99_us: number("p99_us")?,
        cpu_us: number("cpu_us")?,
    })
}

/// Runs the server with this crate, pprof-rs or nothing. Arguments: the arm, and the seconds.
pub(crate) fn run_part(arguments: &[String]) -> Fallible<Value> {
    let [arm, seconds] = arguments else {
        return Err("expected an arm and a number of seconds".into());
    };
    let (profiler, is_free) = profiler_of(arm);
    let params = match profiler {
        "ours" => Some(StartParams::always_on()),
        _ => None,
    };
    let has_context = params.is_some();
    let context = ProfilerContext::new().with_label("route", "/work");
    let enter = move |id: u64| {
        has_context.then(|| {
            let of_request = context.with_trace_id(u128::from(id) << 64 | 1);
            of_request.with_span_id(id).enter()
        })
    };
    let start = || {
        let pprof = match profiler {
            "pprof" => Some(pprof::ProfilerGuard::new(HZ as i32)?),
            _ => None,
        };
        Ok((params.map(ProfilerSession::start).transpose()?, pprof))
    };
    let run = serving::Run {
        program: &std::env::current_exe()?,
        clients: &[child::FLAG, "always_on_clients"],
        seconds,
        is_free,
    };
    serving::run(&run, || register_thread("serving"), enter, start)
}

/// Returns the profiler of an arm, and whether the kernel may choose the processors.
fn profiler_of(arm: &str) -> (&str, bool) {
    match arm.strip_suffix("_free") {
        Some(profiler) => (profiler, true),
        None => (arm, false),
    }
}

/// Builds the server with pyroscope-rs.
fn build_pyroscope_server() -> Fallible<PathBuf> {
    let target = built::folder("always_on")?;
    let target_text = target.to_str().ok_or("the target folder is not UTF-8")?;
    let package = Path::new(built::PACKAGE).join("pyroscope_server");
    let build = ["build", "--release", "--quiet", "--target-dir", target_text];
    built::run(built::cargo(&package, &build))?;
    Ok(target.join("release/pyroscope_server"))
}

/// Runs the clients. Arguments: the seconds, whether the kernel may choose the processors, and the
/// address of each server's thread.
pub(crate) fn run_clients(arguments: &[String]) -> Fallible<Value> {
    let [seconds, is_free, addresses @ ..] = arguments else {
        return Err("expected a number of seconds, a boolean and addresses".into());
    };
    let time = Duration::from_secs(seconds.parse()?);
    let is_free: bool = is_free.parse()?;
    let clients: Vec<_> = addresses
        .iter()
        .enumerate()
        .map(|(connection, address)| {
            let address = address.clone();
            std::thread::spawn(move || {
                if !is_free {
                    pin_to(connection)?;
                }
                ask(&address, time)
            })
        })
        .collect();
    let mut times = Vec::new();
    for client in clients {
        times.extend(client.join().map_err(|_| "a client has panicked")??);
    }
    times.sort_unstable();
    let p99 = times.get(times.len() * 99 / 100).ok_or("no answer")?;
    Ok(json!({
        "requests_a_second": times.len() as f64 / time.as_secs_f64(),
        "p99_us": p99.as_secs_f64() * 1e6,
    }))
}

/// Returns the times of the answers that arrived within `time` after the warm-up.
fn ask(address: &str, time: Duration) -> std::io::Result<Vec<Duration>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut answer = [0; ANSWER.len()];
    let mut times = Vec::new();
    let begin = Instant::now() + WARM_UP;
    loop {
        let sent = Instant::now();
        stream.write_all(b"GET /work HTTP/1.1\r\n\r\n")?;
        stream.read_exact(&mut answer)?;
        let now = Instant::now();
        if now > begin + time {
            return Ok(times);
        }
        if now > begin {
            times.push(now - sent);
        }
    }
}
