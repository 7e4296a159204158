//! Adds one marker of every kind, for you to look at in the viewer. The files in this folder show
//! how to add each of them.
//!
//! ```text
//! cargo run --release --manifest-path examples/marker_gallery/Cargo.toml [-- FILE]
//! ```
//!
//! `formats.rs` has a type for each format of a field. `looks.rs` shows what else a type can set:
//! display locations, labels, colors and graphs. `known.rs` uses the types that come with gekkota;
//! the viewer knows them by name. `circumstances.rs` shows the options that every marker has: its
//! phase, a stack, a page, another thread's track.

mod circumstances;
mod formats;
mod known;
mod looks;

use std::error::Error;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use gekkota::{AutoProfilerInit, ProfilerSession, ProfilerTime, StartParams, ThreadGuard};

fn main() -> Result<(), Box<dyn Error>> {
    let _profiler = AutoProfilerInit::new();
    let file = std::env::args_os()
        .nth(1)
        .map_or_else(|| "marker_gallery.profile.json".into(), PathBuf::from);
    let session = ProfilerSession::start(StartParams::default())?;

    // Markers can have a time in the past: these are spread over the 300 ms of this sleep.
    let start = ProfilerTime::now();
    thread::sleep(Duration::from_millis(300));

    formats::show(start);
    looks::show(start);
    let main_thread = gekkota::thread::profiler_current_thread_id();
    let other = thread::spawn(move || {
        let _registered = ThreadGuard::register("other side");
        looks::show_on_other_thread(start);
        known::show_on_other_thread(start);
        circumstances::show_on_other_thread(start, main_thread);
    });
    other.join().map_err(|_| "the other thread panicked")?;
    known::show(start);
    circumstances::show(start);

    session.finish()?.save(&file)?;
    println!("wrote {}", file.display());
    println!(
        "open it at https://profiler.firefox.com: the marker table and the marker chart of “GeckoMain”"
    );
    Ok(())
}

/// Returns the time `ms` milliseconds after `start`.
fn after(start: ProfilerTime, ms: f64) -> ProfilerTime {
    start.add_microseconds(ms * 1e3)
}
