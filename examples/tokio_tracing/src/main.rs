//! Shows the requests of a server on one timeline with what its threads did for them.
//!
//! ```text
//! cargo run --release --manifest-path examples/tokio_tracing/Cargo.toml [-- FILE]
//! ```
//!
//! A server on Tokio answers some requests. It tells what it does by `tracing`, and a library that it uses by `log`; nothing of that
//! is the profiler's. In the profile each request is an interval `answer`, with its path and status, from the moment at which it came
//! until it was answered, and `look_up` and `render` lie in it; the lines of the log are beside them, each on its thread's track. The
//! samples tell what the workers computed meanwhile, below labels of the same names: a request that waits is on no worker's stack.

mod work;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gekkota::{
    AutoProfilerInit, ProfilerLayer, ProfilerLogger, ProfilerSession, StartParams,
    gecko_profiler_category, profiler_thread_sleep, profiler_thread_wake, register_thread,
};
use log::LevelFilter;
use tokio::runtime::{Builder, Runtime};
use tracing::Instrument;
use tracing::field::Empty;
use tracing_subscriber::prelude::*;

const REQUESTS: usize = 60;
const PATHS: [&str; 4] = ["/", "/search", "/report", "/missing"];

fn main() -> Result<(), Box<dyn Error>> {
    let _profiler = AutoProfilerInit::new();
    let file = std::env::args_os()
        .nth(1)
        .map_or_else(|| "tokio_tracing.profile.json".into(), PathBuf::from);
    // The terminal gets what is grave, and the profile all of it.
    ProfilerLogger::new(Terminal)
        .markers_up_to(LevelFilter::Debug)
        .install(LevelFilter::Error)?;
    let layer = ProfilerLayer::new().with_category(gecko_profiler_category!(Network));
    // Not by `init`, which installs a logger, too, where the crate has its default features.
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

/// A runtime of which the profiler knows the threads, and knows when they have nothing to do.
fn runtime() -> Result<Runtime, std::io::Error> {
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(1)
        .enable_time()
        .thread_name_fn(|| format!("worker-{}", STARTED.fetch_add(1, Ordering::Relaxed) + 1))
        // By the name that the system has for it. It is unregistered when it ends.
        .on_thread_start(|| register_thread(""))
        .on_thread_park(profiler_thread_sleep)
        .on_thread_unpark(profiler_thread_wake)
        .build()
}

/// Takes requests as they come, and answers each in a task of its own. Gives for each path how many there were, and the longest
/// time that one took.
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
            // On another thread: the span goes along, and is its label there.
            let rendered =
                tokio::task::spawn_blocking(move || span.in_scope(|| work::render(rows)));
            rendered.await.map_or(500, |_| 200)
        }
        None => 404,
    };
    tracing::Span::current().record("status", status);
    let took = start.elapsed();
    if took > Duration::from_millis(100) {
        tracing::warn!(number, took_ms = took.as_secs_f64() * 1e3, "that was slow");
    }
    (path, took)
}

/// Asks the database, which takes its time; what the answer has is found out here.
#[tracing::instrument]
async fn look_up(path: &str) -> Option<usize> {
    tokio::time::sleep(Duration::from_millis(12)).await;
    let rows = work::decode(path);
    tracing::debug!(rows, "found");
    rows
}

/// The program's own logger.
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
