//! Markers of every kind, one of each, to look at in the viewer; the files beside this one show how each is made.
//!
//! ```text
//! cargo run --release --example marker_gallery [-- FILE]
//! ```
//!
//! `formats.rs` has a type for each format that a field can have, `looks.rs` what else a type can say of itself: places,
//! labels, colours, graphs. `known.rs` has the types that come with gekkota, which the viewer knows by their names, and
//! `circumstances.rs` what any marker can have: its phase, a stack, a page, another thread's track.

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

    // Markers may tell of what is over: these are spread over the time that passes here.
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
    other.join().map_err(|_| "the other thread has panicked")?;
    known::show(start);
    circumstances::show(start);

    session.finish()?.save(&file)?;
    println!("wrote {}", file.display());
    println!(
        "open it at https://profiler.firefox.com: the marker table and the marker chart of “GeckoMain”"
    );
    Ok(())
}

/// So long after that.
fn after(start: ProfilerTime, ms: f64) -> ProfilerTime {
    start.add_microseconds(ms * 1e3)
}
