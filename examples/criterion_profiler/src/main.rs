//! Records a profile of each criterion benchmark by implementing criterion's profiler hook.
//!
//! ```text
//! cargo run --release --manifest-path examples/criterion_profiler/Cargo.toml [-- FOLDER]
//! ```
//!
//! Criterion calls its `Profiler` when it starts and stops running a benchmark under a profiler. In
//! your own benchmarks, pass the profiler to criterion with `with_profiler`, as `main` does below,
//! and run `cargo bench -- --profile-time 5`. This example sets the profile time itself. Each
//! profile has a marker that spans the whole benchmark and carries its name, a marker for every
//! thousand iterations, and labels for the parts of the benchmark.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use criterion::profiler::Profiler;
use criterion::{Bencher, Criterion};
use flate2::Compression;
use flate2::write::GzEncoder;
use gekkota::gecko_profiler::gecko_profiler_label;
use gekkota::{
    MarkerOptions, MarkerTiming, ProfilerSession, ProfilerTime, StartParams, ThreadGuard,
    add_text_marker, profiler_categories,
};
use regex::Regex;

profiler_categories! {
    /// Category of a benchmark's labels and markers.
    Benchmark("Benchmark", magenta) { Whole: "Whole", Search: "Search", Compress: "Compress" }
}

/// Records the benchmarks that criterion runs.
struct GekkotaProfiler {
    recording: Option<Recording>,
    /// Folder for the profiles; `None` means the folder of criterion's own files.
    folder: Option<PathBuf>,
}

/// The session that records one benchmark.
struct Recording {
    session: ProfilerSession,
    /// Keeps the thread registered while the session runs.
    _thread: ThreadGuard,
    begin: ProfilerTime,
}

impl Profiler for GekkotaProfiler {
    fn start_profiling(&mut self, benchmark_id: &str, _: &Path) {
        let thread = ThreadGuard::register("benchmark");
        match ProfilerSession::start(StartParams::default()) {
            Ok(session) => {
                self.recording = Some(Recording {
                    session,
                    _thread: thread,
                    begin: ProfilerTime::now(),
                });
            }
            // A benchmark without a profile is better than no benchmark.
            Err(error) => eprintln!("cannot profile {benchmark_id}: {error}"),
        }
    }

    fn stop_profiling(&mut self, benchmark_id: &str, benchmark_dir: &Path) {
        let Some(Recording { session, begin, .. }) = self.recording.take() else {
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
            Err(error) => eprintln!("cannot save the profile of {benchmark_id}: {error}"),
        }
    }
}

/// Returns 20,000 pseudo-random words, the same at each run.
fn text() -> String {
    let mut state = 7u32;
    let mut word = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        format!("word{:x} ", state >> 20)
    };
    (0..20_000).map(|_| word()).collect()
}

/// Runs the benchmark and adds a marker for every thousand iterations.
fn iterations(bencher: &mut Bencher<'_>, name: &str, mut body: impl FnMut()) {
    let mut count = 0u64;
    let mut begin = ProfilerTime::now();
    bencher.iter(|| {
        body();
        count += 1;
        if count.is_multiple_of(1000) {
            let options =
                MarkerOptions::default().with_timing(MarkerTiming::interval_until_now_from(begin));
            gekkota::marker::add_text_marker_fmt!(
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
    let pattern = Regex::new("word[0-9a-f]*7f").expect("the pattern is constant and valid");
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
        encoder.write_all(text).expect("a write to memory succeeds");
        std::hint::black_box(encoder.finish().expect("a write to memory succeeds"));
    });
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    let text = text();
    let mut criterion = Criterion::default()
        .with_profiler(GekkotaProfiler {
            recording: None,
            folder,
        })
        .profile_time(Some(Duration::from_secs(2)));
    criterion.bench_function("search", |bencher| search(bencher, &text));
    criterion.bench_function("compress", |bencher| compress(bencher, &text));
    Ok(())
}
