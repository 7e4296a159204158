//! A server with axum that can be asked for profiles while it runs.
//!
//! ```text
//! cargo run --release --manifest-path examples/axum_server/Cargo.toml -- --port 8080
//! curl 'http://127.0.0.1:8080/order/[1-3000]' >/dev/null &
//! go tool pprof -top 'http://127.0.0.1:8080/debug/pprof/profile?seconds=2'
//! go tool pprof -top http://127.0.0.1:8080/debug/pprof/heap
//! ```
//!
//! Open `http://127.0.0.1:8080/debug/pprof/` in a browser for the list. The hottest function is
//! `price_basket`; what stays allocated comes from `remember_order`. A question for a profile waits
//! as a future, so it takes no worker of the runtime.
//!
//! The profiles say much about the program, so this server listens on 127.0.0.1. A real one puts
//! the route behind its own authentication.

use std::error::Error;
use std::io::Write;

use axum::Router;
use axum::extract::Path;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum_server::{Arguments, answer_order};
use gekkota::AutoProfilerInit;
use gekkota::endpoints::answer_async;
use gekkota::memory::ProfilerAllocator;
use gekkota::thread::start_hook;

#[global_allocator]
static ALLOCATOR: ProfilerAllocator = ProfilerAllocator::system();

fn main() -> Result<(), Box<dyn Error>> {
    let _profiler = AutoProfilerInit::new();
    let arguments = Arguments::read()?;
    arguments.start_session()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(arguments.threads)
        .on_thread_start(start_hook("worker"))
        .enable_io()
        .build()?;
    runtime.block_on(serve(arguments.port))
}

async fn serve(port: u16) -> Result<(), Box<dyn Error>> {
    let app = Router::new()
        .route("/order/{number}", get(order))
        .route("/debug/pprof/", get(profiles))
        .route("/debug/pprof/{endpoint}", get(profiles));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    std::io::stdout().flush()?;
    axum::serve(listener, app).await?;
    Ok(())
}

async fn order(Path(number): Path<u64>) -> String {
    answer_order(number)
}

/// Answers everything below `/debug/pprof/`. If the client leaves, axum drops the future, and what
/// only this client wanted stops.
async fn profiles(uri: Uri) -> Response {
    let target = uri.path_and_query().map_or("", |target| target.as_str());
    let answer = answer_async(target).await;
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = answer.headers();
    let mut response = (status, answer.body).into_response();
    for (name, value) in headers {
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(name, value);
        }
    }
    response
}
