//! The work of a process: it searches and compresses files.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use flate2::{Compression, write::GzEncoder};
use gekkota::{
    MarkerOptions, auto_profiler_label, auto_profiler_marker_text, gecko_profiler_category,
};
use regex::Regex;

use crate::files::walk_folder;

const MAX_FILES: usize = 4000;
/// Longer files are left out, so that a worker ends in time.
const MAX_BYTES: u64 = 1 << 20;
const PATTERN: &str = r"\bfn\s+\w+|(?i)\b(?:error|warning|panic|unsafe)\b";

/// Works on every file of this worker's share, again and again, for this time.
pub(crate) fn run(folder: &Path, number: usize, workers: usize, time: Duration) {
    let deadline = Instant::now() + time;
    let pattern = Regex::new(PATTERN).expect("a valid pattern");
    let mut files = walk_folder(folder, MAX_FILES, Some(deadline));
    files.retain(|file| file.bytes <= MAX_BYTES);
    files.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    let share: Vec<_> = files.iter().skip(number).step_by(workers).collect();
    for file in share.iter().cycle() {
        if Instant::now() >= deadline {
            return;
        }
        let Ok(text) = std::fs::read_to_string(&file.path) else {
            continue;
        };
        let name = file.path.file_name().unwrap_or_default().to_string_lossy();
        let description = format!("{name}, {} bytes", file.bytes);
        let category = gecko_profiler_category!(Other);
        auto_profiler_marker_text!("File", category, MarkerOptions::default(), &description);
        search(&text, &pattern);
        compress(&text);
    }
}

#[inline(never)]
fn search(text: &str, pattern: &Regex) -> usize {
    auto_profiler_label!("search", Other);
    pattern.find_iter(text).count()
}

#[inline(never)]
fn compress(text: &str) -> usize {
    auto_profiler_label!("compress", Other);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let compressed = encoder
        .write_all(text.as_bytes())
        .and_then(|()| encoder.finish());
    compressed.expect("a write to memory succeeds").len()
}

/// Sleeps while the workers work.
#[inline(never)]
pub(crate) fn wait(time: Duration) {
    auto_profiler_label!("wait for the workers", Idle);
    std::thread::sleep(time);
}
