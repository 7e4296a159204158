//! The quick figures of gekkota: `cargo bench`.
//!
//! Each is the median of some batches on the calling thread, in a few seconds for all of them.
//! `cargo peers NAME` compares gekkota with other libraries, in processes of their own; see
//! `benches/README.md`.

#[path = "common/batch.rs"]
mod batch;
#[path = "common/numbers.rs"]
mod numbers;

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use gekkota::{
    MarkerOptions, ProfilerSession, ProfilerTime, StartParams, ThreadGuard, add_text_marker,
    add_untyped_marker, auto_profiler_label, gecko_profiler_category,
};

use batch::{batch, relaxed_load};
use numbers::{least, median};

const BATCHES: usize = 20;
const ROUNDS: u32 = 20_000;
/// How long the calling thread is sampled.
const SAMPLED: Duration = Duration::from_millis(500);

fn main() -> Result<(), Box<dyn Error>> {
    println!("{:40} {:>10} {:>10}", "ns", "median", "fastest");
    let _registered = ThreadGuard::register("figures");
    print("a relaxed load", || relaxed_load(ROUNDS));
    print("label, without a session", labels);
    print("marker with a text, without a session", text_markers);
    let begin = Instant::now();
    let session = ProfilerSession::start(StartParams::default())?;
    let start = begin.elapsed();
    print("label", labels);
    print("reading of the clock", clock);
    print("marker with a name", untyped_markers);
    print("marker with a text", text_markers);
    drop(session.finish()?);
    let (sampler_ns, samples, stop) = sample()?;
    if samples > 0 {
        let each = sampler_ns as f64 / samples as f64;
        println!("{:40} {each:10.0}", "CPU time of the sampler for a sample");
    }
    println!(
        "{:40} {:10}",
        "start of the first session",
        start.as_nanos()
    );
    println!("{:40} {:10}", "end of a session", stop.as_nanos());
    Ok(())
}

fn print(name: &str, run: fn() -> f64) {
    let batches: Vec<f64> = (0..BATCHES).map(|_| run()).collect();
    println!(
        "{name:40} {:10.2} {:10.2}",
        median(&batches),
        least(&batches)
    );
}

#[inline(never)]
fn labels() -> f64 {
    batch!(ROUNDS, auto_profiler_label!("a label", Other))
}

#[inline(never)]
fn clock() -> f64 {
    batch!(ROUNDS, let _ = black_box(ProfilerTime::now()))
}

#[inline(never)]
fn untyped_markers() -> f64 {
    let category = gecko_profiler_category!(Other);
    batch!(
        ROUNDS,
        add_untyped_marker("a marker", category, MarkerOptions::default())
    )
}

#[inline(never)]
fn text_markers() -> f64 {
    let (category, text) = (
        gecko_profiler_category!(Other),
        black_box("a text, 16 bytes"),
    );
    batch!(
        ROUNDS,
        add_text_marker("a marker", category, MarkerOptions::default(), text)
    )
}

/// Returns the sampler's CPU time in ns and the number of samples while the calling thread is busy,
/// and the time that the session's end took.
fn sample() -> Result<(u64, u64, Duration), Box<dyn Error>> {
    let session = ProfilerSession::start(StartParams::default())?;
    let begin = Instant::now();
    while begin.elapsed() < SAMPLED {
        black_box(());
    }
    let begin = Instant::now();
    let profile = session.finish()?;
    let stop = begin.elapsed();
    let counts = profile.sampler_counts();
    let count = |name| {
        let found = counts.iter().find(|(known, _)| *known == name);
        found.map_or(0, |(_, count)| *count)
    };
    Ok((count("sampler_cpu_ns"), count("captured_samples"), stop))
}
