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
//!   one.
//! - `ours` has the parameters of `StartParams::always_on`: it samples all threads at 100 Hz by wall
//!   time, and each request has a context with the ids of a trace and a span and a label. `pprof` is
//!   pprof-rs at 100 Hz, which samples by CPU time and knows no requests. `pyroscope` is pyroscope-rs,
//!   which does the same, and sends a profile to a store in each tenth second of the clock, so that only
//!   some runs have one. Its server is a separate package, which the first run builds. `none_again` is
//!   a second run without a profiler: the noise.
//! - The figures are the requests a second that are missing, in percent of those without a profiler
//!   in the same round. `…_p99` is by how many percent the p99 of the answers is longer. `…_cpu` is by
//!   how many percent a request takes more CPU time of the server, the profiler's threads included.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use gekkota::context::ProfilerContext;

use crate::numbers::percentile;
use crate::prelude::*;
use crate::raw::pin_to;
use crate::serving::{self, ANSWER};
use crate::{built, store};

/// Time before the measurement, in which caches get warm.
const WARM_UP: Duration = Duration::from_millis(500);
const ARMS: [&str; 5] = ["none", "ours", "pprof", "pyroscope", "none_again"];

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "always_on",
    unit: "% of the requests a second that are missing; `…_p99`: longer by %; `…_cpu`: % more CPU time for a request",
    goal: "ours <= 1 %, and no more than pprof and pyroscope",
    peers: &["pprof", "pyroscope"],
    is_met: |study| {
        let peers = study.figure("pprof").min(study.figure("pyroscope"));
        study.at_most(&["ours"], peers.min(1.0))
    },
    measure: |study| {
        let seconds = study.pick(3, 4);
        let (server, store) = (build_pyroscope_server()?, store::start(|_| {})?);
        let about = format!("{seconds} s for each arm");
        study.rounds(study.pick(1, 15), about, |study, round| {
            let mut runs = ARMS.map(|_| Value::Null);
            for turn in 0..ARMS.len() {
                let place = (round + turn) % ARMS.len();
                runs[place] = match ARMS[place] {
                    "pyroscope" => {
                        let mut command = Command::new(&server);
                        command.arg(std::env::current_exe()?);
                        command.args([&seconds.to_string(), &store]);
                        child::answer_of(command)?
                    }
                    arm => child::run("always_on", &[&arm, &seconds])?,
                };
            }
            for (arm, run) in ARMS.iter().zip(&runs).skip(1) {
                let times = |figure| Fallible::Ok(number(run, figure)? / number(&runs[0], figure)?);
                study.push(arm, (1.0 - times("requests_a_second")?) * 100.0);
                study.push(&format!("{arm}_p99"), (times("p99_us")? - 1.0) * 100.0);
                study.push(&format!("{arm}_cpu"), (times("cpu_us")? - 1.0) * 100.0);
            }
            Ok(())
        })
    },
    part: run,
    ..Measurement::NEW
};

/// Runs the server with this crate, pprof-rs or nothing. Arguments: the arm, and the seconds; or
/// `clients`, and the arguments of these.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let (arm, seconds) = (arguments.text(0)?, arguments.text(1)?);
    if arm == "clients" {
        return run_clients(seconds.parse()?, &arguments.0[2..]);
    }
    let params = (arm == "ours").then(StartParams::always_on);
    let has_context = params.is_some();
    let context = ProfilerContext::new().with_label("route", "/work");
    let enter = move |id: u64| {
        has_context.then(|| {
            let of_request = context.with_trace_id(u128::from(id) << 64 | 1);
            of_request.with_span_id(id).enter()
        })
    };
    let start = || {
        let start_pprof = || pprof_rs::start(Duration::from_millis(10));
        let pprof = (arm == "pprof").then(start_pprof).transpose()?;
        Ok((params.map(ProfilerSession::start).transpose()?, pprof))
    };
    let run = serving::Run {
        program: &std::env::current_exe()?,
        clients: &[child::FLAG, "always_on", "clients"],
        seconds,
    };
    serving::run(&run, || register_thread("serving"), enter, start)
}

/// Builds the server with pyroscope-rs.
fn build_pyroscope_server() -> Fallible<PathBuf> {
    let target = built::folder("always_on")?;
    let package = Path::new(built::PACKAGE).join("pyroscope_server");
    let mut command = built::cargo(&package, "build --release --quiet --target-dir");
    command.arg(&target);
    built::run(command)?;
    Ok(target.join("release/pyroscope_server"))
}

/// Runs the clients, one for the address of each server's thread.
fn run_clients(seconds: u64, addresses: &[String]) -> Fallible<Value> {
    let time = Duration::from_secs(seconds);
    let addresses = addresses.iter().cloned().enumerate();
    let clients: Vec<_> = addresses
        .map(|(connection, address)| {
            std::thread::spawn(move || {
                pin_to(connection)?;
                ask(&address, time)
            })
        })
        .collect();
    let mut times = Vec::new();
    for client in clients {
        times.extend(client.join().map_err(|_| "a client has panicked")??);
    }
    let us: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e6).collect();
    Ok(json!({
        "requests_a_second": times.len() as f64 / time.as_secs_f64(),
        "p99_us": percentile(&us, 0.99),
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
