//! Shows a server's requests on one timeline with the work that its threads did for them.
//!
//! ```text
//! cargo run --release --manifest-path examples/tokio_tracing/Cargo.toml [-- FILE]
//! ```
//!
//! A Tokio server answers some requests. It reports its work with `tracing`, and a library that it
//! uses logs with `log`; neither mentions the profiler. In the profile, each request is an interval
//! `answer` with its path and status, from its arrival until its answer. The intervals `look_up`
//! and `render` lie inside it. The log records are markers on the track of the thread that logged
//! them. The samples show what the workers computed, below labels of the same names. A request that
//! waits is on no worker's stack.

mod work;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gekkota::thread::start_hook;
use gekkota::{
    AutoProfilerInit, ProfilerLayer, ProfilerLogger, ProfilerSession, StartParams,
    profiler_categories, profiler_thread_sleep, profiler_thread_wake,
};
use log::LevelFilter;
use tokio::runtime::{Builder, Runtime};
use tracing::Instrument;
use tracing::field::Empty;
use tracing_subscriber::prelude::*;

profiler_categories! {
    /// Category of the server's spans and events, and of the samples below them.
    Server("Server", blue) { Requests: "Requests" }
}

const REQUESTS: usize = 60;
const PATHS: [&str; 4] = ["/", "/search", "/report", "/missing"];

fn main() -> Result<(), Box<dyn Error>> {
    let _profiler = AutoProfilerInit::new();
    let file = std::env::args_os()
        .nth(1)
        .map_or_else(|| "tokio_tracing.profile.json".into(), PathBuf::from);
    // The terminal gets only errors; the profile gets all records up to `Debug`.
    ProfilerLogger::new(Terminal)
        .markers_up_to(LevelFilter::Debug)
        .install(LevelFilter::Error)?;
    let layer = ProfilerLayer::new().with_category(Server::Requests);
    // `init` is not used here, because with the default features of `tracing-subscriber` it also
    // installs a logger.
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))?;

    let session = ProfilerSession::start(StartParams::default())?;
    let runtime = runtime()?;
    let answered = runtime.block_on(serve());
    drop(runtime);
    let profile = session.finish()?;
    profile.save(&file)?;

    for (path, (count, longest)) in &answered {
        println!(
            "{count:>3} × {path:<10} up to {:>5.1} ms",
            longest.as_secs_f64() * 1e3
        );
    }
    println!("wrote {}", file.display());
    println!(
        "open it at https://profiler.firefox.com: the markers `answer` of the workers, and the flame graph below the labels"
    );
    Ok(())
}

/// Builds a runtime that registers its threads and tells the profiler when they are idle.
fn runtime() -> Result<Runtime, std::io::Error> {
    Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(1)
        .enable_time()
        // The threads are `worker 1`, `worker 2` and so on. A thread unregisters itself when it exits.
        .on_thread_start(start_hook("worker"))
        .on_thread_park(profiler_thread_sleep)
        .on_thread_unpark(profiler_thread_wake)
        .build()
}

/// Receives the requests and answers each in its own task. Returns, for each path, the number of
/// requests and the longest time that one took.
async fn serve() -> BTreeMap<&'static str, (usize, Duration)> {
    let mut tasks = Vec::new();
    for number in 0..REQUESTS {
        tokio::time::sleep(Duration::from_millis(8)).await;
        let path = PATHS[number % PATHS.len()];
        let span = tracing::info_span!("answer", number, path, status = Empty);
        tasks.push(tokio::spawn(answer(number, path).instrument(span)));
    }
    let mut answered = BTreeMap::new();
    for task in tasks {
        if let Ok((path, took)) = task.await {
            let (count, longest) = answered.entry(path).or_insert((0, Duration::ZERO));
            *count += 1;
            *longest = took.max(*longest);
        }
    }
    answered
}

async fn answer(number: usize, path: &'static str) -> (&'static str, Duration) {
    let start = Instant::now();
    work::parse(path);
    let status = match look_up(path).await {
        Some(rows) => {
            let span = tracing::info_span!("render", rows);
            // This runs on another thread. Entering the span there makes it a label of that thread.
            let rendered =
                tokio::task::spawn_blocking(move || span.in_scope(|| work::render(rows)));
            rendered.await.map_or(500, |_| 200)
        }
        None => 404,
    };
    tracing::Span::current().record("status", status);
    let took = start.elapsed();
    if took > Duration::from_millis(100) {
        tracing::warn!(number, took_ms = took.as_secs_f64() * 1e3, "slow request");
    }
    (path, took)
}

/// Waits for the database, then decodes its answer on this thread.
#[tracing::instrument]
async fn look_up(path: &str) -> Option<usize> {
    tokio::time::sleep(Duration::from_millis(12)).await;
    let rows = work::decode(path);
    tracing::debug!(rows, "found");
    rows
}

/// The server's own logger.
struct Terminal;

impl log::Log for Terminal {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Error
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            eprintln!("{}: {}", record.target(), record.args());
        }
    }

    fn flush(&self) {}
}
