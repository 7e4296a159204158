//! The same server with `tiny_http`: each of its threads answers one request at a time.
//!
//! ```text
//! cargo run --release --manifest-path examples/axum_server/Cargo.toml --bin tiny_http_server -- --threads 4
//! ```
//!
//! A client that asks for a profile keeps one thread busy for the seconds that it asks for. So
//! there must be more threads than such clients, and a limit of them keeps the others free.

use std::error::Error;
use std::io::Write;
use std::sync::Arc;

use axum_server::{Arguments, answer_order};
use gekkota::AutoProfilerInit;
use gekkota::endpoints::{EndpointLimits, answer, set_endpoint_limits};
use gekkota::memory::ProfilerAllocator;
use gekkota::thread::RegisteredSpawn;
use tiny_http::{Header, Request, Response, Server};

#[global_allocator]
static ALLOCATOR: ProfilerAllocator = ProfilerAllocator::system();

fn main() -> Result<(), Box<dyn Error>> {
    let _profiler = AutoProfilerInit::new();
    let arguments = Arguments::read()?;
    arguments.start_session()?;
    // One thread always answers orders.
    let most = arguments.threads.saturating_sub(1);
    set_endpoint_limits(EndpointLimits::default().max_clients(most));
    let server = Server::http(("127.0.0.1", arguments.port)).map_err(|error| error.to_string())?;
    println!("listening on http://{}", server.server_addr());
    std::io::stdout().flush()?;
    let server = Arc::new(server);
    let mut threads = Vec::new();
    for number in 0..arguments.threads {
        let server = Arc::clone(&server);
        let thread = std::thread::Builder::new().name(format!("worker {number}"));
        threads.push(thread.spawn_registered(move || run(&server))?);
    }
    for thread in threads {
        thread.join().map_err(|_| "a worker has panicked")?;
    }
    Ok(())
}

fn run(server: &Server) {
    while let Ok(request) = server.recv() {
        // A client that has left gets no answer.
        let _ = respond(request);
    }
}

fn respond(request: Request) -> std::io::Result<()> {
    let target = request.url().to_owned();
    if let Some(number) = target.strip_prefix("/order/") {
        return match number.parse() {
            Ok(number) => request.respond(Response::from_string(answer_order(number))),
            Err(_) => request.respond(Response::from_string("no number\n").with_status_code(400)),
        };
    }
    if !target.starts_with("/debug/pprof/") {
        return request.respond(Response::from_string("nothing here\n").with_status_code(404));
    }
    let answer = answer(&target);
    let headers = answer.headers();
    let mut response = Response::from_data(answer.body).with_status_code(answer.status);
    for (name, value) in headers {
        if let Ok(header) = Header::from_bytes(name, value) {
            response.add_header(header);
        }
    }
    request.respond(response)
}
