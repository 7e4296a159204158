//! The server of `always_on`. The package `pyroscope_server` has it, too.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::busy::work;
use crate::raw::{pin_to, process_cpu_ns};

type Fallible<T> = Result<T, Box<dyn Error>>;

const CONNECTIONS: usize = 4;
/// Portions of work of a request, about 10 µs each.
const PORTIONS: u64 = 20;
pub(crate) const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// How a server runs, apart from its profiler.
pub(crate) struct Run<'a> {
    /// The program of the measurements, which is also that of the clients.
    pub(crate) program: &'a Path,
    /// The program's arguments before those of the clients.
    pub(crate) clients: &'a [&'a str],
    pub(crate) seconds: &'a str,
}

/// Runs the server, and the clients in another process. Each thread calls `begin` first, and calls
/// `enter` with the number of each request, and drops the result when it has answered. `start` starts the
/// profiler, which is stopped when the clients have ended.
pub(crate) fn run<Context, Profiler>(
    run: &Run<'_>,
    begin: fn(),
    enter: impl Fn(u64) -> Context + Clone + Send + 'static,
    start: impl FnOnce() -> Fallible<Profiler>,
) -> Fallible<Value> {
    let mut command = Command::new(run.program);
    command
        .args(run.clients)
        .arg(run.seconds)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let mut serving = Vec::new();
    for connection in 0..CONNECTIONS {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        command.arg(listener.local_addr()?.to_string());
        let enter = enter.clone();
        serving.push(std::thread::Builder::new().spawn(move || {
            begin();
            pin_to(connection)?;
            let (stream, _) = listener.accept()?;
            serve(stream, enter)
        })?);
    }
    let profiler = start()?;
    let before_ns = process_cpu_ns();
    let output = command.output()?;
    let used_ns = process_cpu_ns() - before_ns;
    if !output.status.success() {
        return Err(format!("the clients ended with {}", output.status).into());
    }
    let clients: Value = serde_json::from_slice(&output.stdout)?;
    let mut requests = 0;
    for thread in serving {
        requests += thread.join().map_err(|_| "a server has panicked")??;
    }
    drop(profiler);
    Ok(json!({
        "requests_a_second": clients["requests_a_second"],
        "p99_us": clients["p99_us"],
        "cpu_us": used_ns as f64 / 1e3 / requests as f64,
    }))
}

/// Answers requests until the client leaves. Returns their number.
fn serve<Context>(stream: TcpStream, enter: impl Fn(u64) -> Context) -> std::io::Result<u64> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    let mut numbers = Box::new([0; 512]);
    let mut requests = 0;
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(requests);
        }
        if !line.trim().is_empty() {
            continue;
        }
        requests += 1;
        let _context = enter(requests);
        for portion in 0..PORTIONS {
            std::hint::black_box(work(requests << 8 | portion, &mut numbers));
        }
        stream.write_all(ANSWER)?;
    }
}
