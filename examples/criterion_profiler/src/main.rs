//! Criterion's benchmarks, each with a profile: an implementation of the hook that criterion has for profilers.
//!
//! ```text
//! cargo run --release --manifest-path examples/criterion_profiler/Cargo.toml [-- FOLDER]
//! ```
//!
//! `criterion::profiler::Profiler` is told when a benchmark begins to run for a profiler, and when it ends. In a benchmark of
//! one's own it is given to criterion by `with_profiler`, as in `main` below, and asked for by
//! `cargo bench -- --profile-time 5`; this example asks for it by itself. Each benchmark's profile has a marker of its name over its
//! time, one for each thousand iterations, and labels for the benchmark's parts.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use criterion::profiler::Profiler;
use criterion::{Bencher, Criterion};
use flate2::Compression;
use flate2::write::GzEncoder;
use gekkota::{
    MarkerOptions, MarkerTiming, ProfilerSession, ProfilerTime, StartParams, ThreadGuard,
    add_text_marker, gecko_profiler_label, profiler_categories,
};
use regex::Regex;

profiler_categories! {
    /// What belongs to a benchmark.
    Benchmark("Benchmark", magenta) { Whole: "Whole", Search: "Search", Compress: "Compress" }
}

/// Records what criterion runs for it.
struct GekkotaProfiler {
    running: Option<Running>,
    /// Where profiles go; beside criterion's own files unless it is said.
    folder: Option<PathBuf>,
}

struct Running {
    session: ProfilerSession,
    /// The thread is registered for as long.
    _thread: ThreadGuard,
    begin: ProfilerTime,
}

impl Profiler for GekkotaProfiler {
    fn start_profiling(&mut self, benchmark_id: &str, _: &Path) {
        let thread = ThreadGuard::register("benchmark");
        match ProfilerSession::start(StartParams::default()) {
            Ok(session) => {
                self.running = Some(Running {
                    session,
                    _thread: thread,
                    begin: ProfilerTime::now(),
                });
            }
            // A benchmark without a profile is better than none.
            Err(error) => eprintln!("{benchmark_id} has no profile: {error}"),
        }
    }

    fn stop_profiling(&mut self, benchmark_id: &str, benchmark_dir: &Path) {
        let Some(Running { session, begin, .. }) = self.running.take() else {
            return;
        };
        let options =
            MarkerOptions::default().with_timing(MarkerTiming::interval_until_now_from(begin));
        add_text_marker("Benchmark", Benchmark::Whole, options, benchmark_id);
        let folder = self.folder.as_deref().unwrap_or(benchmark_dir);
        let name = benchmark_id.replace(|c: char| !c.is_alphanumeric(), "_");
        let path = folder.join(format!("{name}.profile.json"));
        let saved = std::fs::create_dir_all(folder)
            .map_err(|error| error.to_string())
            .and_then(|()| session.finish().map_err(|error| error.to_string()))
            .and_then(|profile| profile.save(&path).map_err(|error| error.to_string()));
        match saved {
            Ok(()) => println!("{benchmark_id}: {}", path.display()),
            Err(error) => eprintln!("the profile of {benchmark_id} is not saved: {error}"),
        }
    }
}

/// A text with words in no order.
fn text() -> String {
    let mut state = 7u32;
    let mut word = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        format!("word{:x} ", state >> 20)
    };
    (0..20_000).map(|_| word()).collect()
}

/// Tells of each thousandth iteration.
fn iterations(bencher: &mut Bencher<'_>, name: &str, mut body: impl FnMut()) {
    let mut count = 0u64;
    let mut begin = ProfilerTime::now();
    bencher.iter(|| {
        body();
        count += 1;
        if count.is_multiple_of(1000) {
            let options =
                MarkerOptions::default().with_timing(MarkerTiming::interval_until_now_from(begin));
            gekkota::add_text_marker_fmt!(
                name,
                Benchmark::Whole,
                options,
                "{} to {count}",
                count - 999
            );
            begin = ProfilerTime::now();
        }
    });
}

fn search(bencher: &mut Bencher<'_>, text: &str) {
    let pattern = Regex::new("word[0-9a-f]*7f").expect("a pattern");
    let text = &text[..4096];
    iterations(bencher, "Searches", || {
        gecko_profiler_label!(Benchmark::Search);
        std::hint::black_box(pattern.find_iter(text).count());
    });
}

fn compress(bencher: &mut Bencher<'_>, text: &str) {
    use std::io::Write;
    let text = &text.as_bytes()[..2048];
    iterations(bencher, "Compressions", || {
        gecko_profiler_label!(Benchmark::Compress);
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).expect("a vector never fails");
        std::hint::black_box(encoder.finish().expect("a vector never fails"));
    });
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    let text = text();
    let mut criterion = Criterion::default()
        .with_profiler(GekkotaProfiler {
            running: None,
            folder,
        })
        .profile_time(Some(Duration::from_secs(2)));
    criterion.bench_function("search", |bencher| search(bencher, &text));
    criterion.bench_function("compress", |bencher| compress(bencher, &text));
    Ok(())
}
