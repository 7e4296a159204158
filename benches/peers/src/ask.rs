//! `ask`: what it costs a running server that 16 clients ask it for profiles at once.
//!
//! The server is the example `axum_server` without a session of its own, with 2 workers. All the
//! time, a client sends it orders at a fixed rate. Each order is timed from the moment at which it
//! was due.
//!
//! - `ours` is the time that the slowest of the 16 answers took above the seconds that were asked
//!   for.
//! - `memory` is the peak of the server's anonymous memory above that before, in MB.
//! - `p99` and `p99_quiet` are what orders took while the 16 clients were there, and without them,
//!   in ms; `p99_more` is by how many percent the first is above the second.
//!
//! The first round of a server also reads its debug information. Each round has a server of its
//! own, as one that is asked for the first time.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::built::{PACKAGE, cargo, folder, run};
use crate::memory::anonymous_bytes;
use crate::numbers::percentile;
use crate::prelude::*;

/// What the clients ask for, in turn.
const NAMES: [&str; 8] = [
    "profile",
    "profile",
    "wall",
    "gecko",
    "profile",
    "flamegraph",
    "profile",
    "summary",
];
const CLIENTS: usize = 16;
const ORDERS_A_SECOND: u32 = 200;

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "ask",
    unit: "time of the slowest of 16 answers above the seconds asked for, in s; `memory`: peak above that before, in MB; \
           `p99…`: time of an order, in ms; `p99_more`: in %",
    goal: "ours <= 0.5 s, memory <= 64 MB, and p99_more <= 2 %",
    is_met: |study| {
        let goals = [("ours", 0.5), ("memory", 64.0), ("p99_more", 2.0)];
        goals.iter().all(|(arm, goal)| study.at_most(&[arm], *goal))
    },
    measure: |study| {
        let seconds = study.pick(2, 5);
        let program = build()?;
        let about = format!(
            "each with a server of its own: {CLIENTS} clients for {seconds} s, {ORDERS_A_SECOND} orders a second"
        );
        study.rounds(study.pick(2, 7), about, |study, _| {
            run_round(study, &program, seconds)
        })
    },
    ..Measurement::NEW
};

fn build() -> Fallible<PathBuf> {
    let package = Path::new(PACKAGE).join("../../examples/axum_server");
    let target = folder("ask")?;
    let mut command = cargo(
        &package,
        "build --release --locked --bin axum_server --target-dir",
    );
    command.arg(&target);
    run(command)?;
    Ok(target.join("release/axum_server"))
}

struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(program: &Path) -> Fallible<Self> {
        let mut process = Command::new(program)
            .args(["--port", "0", "--on-demand", "--threads", "2"])
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().ok_or("no pipe")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let address = line.trim().strip_prefix("listening on http://");
        let address = address.ok_or("the server has not said where it listens")?;
        Ok(Self {
            process,
            address: address.to_owned(),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Asks a server for profiles.
fn run_round(study: &mut Study, program: &Path, seconds: u64) -> Fallible<()> {
    let server = Server::start(program)?;
    let sleep = |seconds| move || std::thread::sleep(Duration::from_secs(seconds));
    // Warm up: connections, caches, frequencies.
    orders_while(&server.address, sleep(1))?;
    let ((), quiet) = orders_while(&server.address, sleep(seconds))?;
    let process = server.process.id().to_string();
    let before = anonymous_bytes(&process);
    let is_over = AtomicBool::new(false);
    let ((answers, peak), asked) = orders_while(&server.address, || {
        std::thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut peak = 0;
                while !is_over.load(Ordering::Relaxed) {
                    peak = peak.max(anonymous_bytes(&process));
                    std::thread::sleep(Duration::from_millis(2));
                }
                peak
            });
            let address = &server.address;
            let ask = |number| {
                let name = NAMES[number % NAMES.len()];
                scope.spawn(move || ask(address, name, seconds).ok())
            };
            let clients: Vec<_> = (0..CLIENTS).map(ask).collect();
            let answers = clients
                .into_iter()
                .map(|client| client.join().ok().flatten());
            let answers: Option<Vec<f64>> = answers.collect();
            is_over.store(true, Ordering::Relaxed);
            (answers, watch.join().unwrap_or(0))
        })
    })?;
    let answers = answers.ok_or("a client got no profile")?;
    let (p99, p99_quiet) = (p99_ms(&asked), p99_ms(&quiet));
    study.push("ours", answers.into_iter().fold(0.0, f64::max));
    study.push("memory", peak.saturating_sub(before) as f64 / 1e6);
    study.push("p99", p99);
    study.push("p99_quiet", p99_quiet);
    study.push("p99_more", (p99 / p99_quiet - 1.0) * 100.0);
    Ok(())
}

/// Returns the time above the seconds asked for.
fn ask(address: &str, name: &str, seconds: u64) -> Fallible<f64> {
    let begin = Instant::now();
    let mut connection = TcpStream::connect(address)?;
    write!(
        connection,
        "GET /debug/pprof/{name}?seconds={seconds} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer)?;
    let above = begin.elapsed().as_secs_f64() - seconds as f64;
    match answer.starts_with(b"HTTP/1.1 200 ") {
        true => Ok(above),
        false => Err("the server has refused".into()),
    }
}

/// Sends orders at a fixed rate while `work` runs. Returns the time that each took from the moment
/// at which it was due.
fn orders_while<T>(address: &str, work: impl FnOnce() -> T) -> Fallible<(T, Vec<Duration>)> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let client =
            scope.spawn(|| send_orders(address, &is_over).map_err(|error| error.to_string()));
        let result = work();
        is_over.store(true, Ordering::Relaxed);
        let times = client.join().map_err(|_| "the client has panicked")?;
        Ok((result, times?))
    })
}

fn send_orders(address: &str, is_over: &AtomicBool) -> Fallible<Vec<Duration>> {
    let connection = TcpStream::connect(address)?;
    connection.set_nodelay(true)?;
    let mut reader = BufReader::new(connection.try_clone()?);
    let mut times = Vec::new();
    let mut due = Instant::now();
    let mut connection = connection;
    while !is_over.load(Ordering::Relaxed) {
        due += Duration::from_secs(1) / ORDERS_A_SECOND;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let number = times.len();
        let request = format!("GET /order/{number} HTTP/1.1\r\nHost: {address}\r\n\r\n");
        connection.write_all(request.as_bytes())?;
        read_answer(&mut reader)?;
        times.push(due.elapsed());
    }
    Ok(times)
}

fn read_answer(reader: &mut impl BufRead) -> Fallible<()> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = value.parse()?;
        }
    }
    reader.read_exact(&mut vec![0; length])?;
    Ok(())
}

fn p99_ms(times: &[Duration]) -> f64 {
    let times: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
    percentile(&times, 0.99)
}
