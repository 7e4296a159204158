//! Runs the profiled threads. Each thread describes its work with labels and markers.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use flate2::{Compression, write::GzEncoder};
use gekkota::{
    MarkerOptions, ThreadGuard, add_text_marker, auto_profiler_label, auto_profiler_marker_text,
    gecko_profiler_category, profiler_categories,
};
use regex::Regex;

use crate::files::{TextFile, walk_folder};
use crate::progress;

profiler_categories! {
    /// Looking for files and reading them. A category gives labels and markers its color.
    Files("Files", blue) { Walk: "Walk", Read: "Read" }
    /// Searching texts for patterns.
    Patterns("Patterns", orange) { Search: "Search" }
    /// Compressing texts.
    Encoding("Encoding", magenta) { Compress: "Compress" }
}

/// Patterns to search for: functions, strings, links, numbers, and words that hint at problems.
const PATTERNS: [&str; 5] = [
    r"\bfn\s+\w+",
    r#""(?:[^"\\]|\\.)*""#,
    r#"https?://[^\s<>"')]+"#,
    r"\b0x[0-9a-fA-F_]+|\b\d[\d_]*\b",
    r"(?i)\b(?:error|warning|panic|unsafe|deprecated)\b",
];

/// Maximum number of files, so that a walk of a whole file system ends.
const MAX_FILES: usize = 10_000;
/// Size of a batch, in bytes: about 10 ms of work, so that there are hundreds of markers rather
/// than one per file.
const BATCH_BYTES: u64 = 256 << 10;
const MAX_BATCH_FILES: usize = 500;
const NAP: Duration = Duration::from_millis(250);

/// The work done so far by all workers.
#[derive(Default)]
pub(crate) struct Totals {
    pub(crate) files: AtomicU64,
    pub(crate) matches: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) compressed_bytes: AtomicU64,
}

/// Runs the workers for `time`, and shows their progress.
///
/// # Errors
/// Fails if the system cannot create a thread.
pub(crate) fn run(folder: &Path, time: Duration) -> io::Result<()> {
    let totals = &Totals::default();
    let started = Instant::now();
    let deadline = started + time;
    let workers = thread::available_parallelism()
        .map_or(2, usize::from)
        .clamp(2, 4);
    thread::scope(|scope| {
        for index in 0..workers {
            let work = move || work_through_folder(folder, (index, workers), totals, deadline);
            spawn_profiled(scope, format!("worker-{}", index + 1), work)?;
        }
        spawn_profiled(scope, "housekeeper".to_owned(), move || {
            run_housekeeper(totals, deadline)
        })?;
        progress::show(folder, workers, totals, started, deadline);
        Ok(())
    })
}

fn spawn_profiled<'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: String,
    work: impl FnOnce() + Send + 'scope,
) -> io::Result<()> {
    let builder = thread::Builder::new().name(name.clone());
    let spawned = builder.spawn_scoped(scope, move || {
        // Threads need not register. But this one is to have its whole name, and all its labels.
        let _registered = ThreadGuard::register(&name);
        work();
    });
    spawned.map(drop)
}

/// Runs a worker: walks the folder and processes its share of the files, until the deadline.
fn work_through_folder(folder: &Path, share: (usize, usize), totals: &Totals, deadline: Instant) {
    let patterns =
        PATTERNS.map(|pattern| Regex::new(pattern).expect("the patterns are constant and valid"));
    while Instant::now() < deadline {
        // A slow disk must leave time for the rest.
        let walk_end = Instant::now() + (deadline - Instant::now()) / 4;
        let files = share_of(find_files(folder, walk_end), share);
        if files.is_empty() {
            // Another program has removed the files since the start.
            return;
        }
        let bytes: u64 = files.iter().map(|file| file.bytes).sum();
        let mut next_files = files.iter().cycle();
        for _ in 0..bytes.div_ceil(BATCH_BYTES) {
            let texts = read_batch(&mut next_files, deadline);
            search_batch(&texts, &patterns, totals);
            compress_batch(&texts, totals);
            if Instant::now() >= deadline {
                return;
            }
        }
    }
}

/// Returns the files of worker `index`. Each worker walks the folder by itself. Because each one
/// sorts its list, the lists are equal and the shares do not overlap, unless the time was too short
/// for all files.
fn share_of(mut files: Vec<TextFile>, (index, workers): (usize, usize)) -> Vec<TextFile> {
    if files.len() < workers {
        return files;
    }
    files.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    files.into_iter().skip(index).step_by(workers).collect()
}

/// Lists the files of the folder that are found before the deadline.
#[inline(never)]
fn find_files(folder: &Path, deadline: Instant) -> Vec<TextFile> {
    let folder_name = &folder.to_string_lossy();
    auto_profiler_label!("walk", Files::Walk);
    auto_profiler_marker_text!("Walk", Files::Walk, MarkerOptions::default(), folder_name);
    walk_folder(folder, MAX_FILES, Some(deadline))
}

struct Text {
    file_name: String,
    text: String,
}

/// Reads the next batch of files. Skips files that can no longer be read.
#[inline(never)]
fn read_batch<'a>(files: &mut impl Iterator<Item = &'a TextFile>, deadline: Instant) -> Vec<Text> {
    auto_profiler_label!("read", Files::Read);
    let mut texts = Vec::new();
    let mut bytes = 0;
    for file in files {
        if let Ok(content) = std::fs::read(&file.path) {
            let file_name = file
                .path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let text = String::from_utf8_lossy(&content).into_owned();
            bytes += text.len() as u64;
            texts.push(Text { file_name, text });
        }
        if bytes >= BATCH_BYTES || texts.len() == MAX_BATCH_FILES || Instant::now() >= deadline {
            break;
        }
    }
    texts
}

/// Returns the text of a batch's markers.
fn name_batch(texts: &[Text]) -> String {
    match texts {
        [] => "nothing".to_owned(),
        [only] => only.file_name.clone(),
        [first, .., last] => format!(
            "{} … {} ({} files)",
            first.file_name,
            last.file_name,
            texts.len()
        ),
    }
}

#[inline(never)]
fn search_batch(texts: &[Text], patterns: &[Regex], totals: &Totals) {
    let batch = name_batch(texts);
    auto_profiler_label!("search", Patterns::Search);
    auto_profiler_marker_text!("Search", Patterns::Search, MarkerOptions::default(), &batch);
    for Text { text, .. } in texts {
        totals
            .matches
            .fetch_add(search_text(text, patterns), Ordering::Relaxed);
    }
}

#[inline(never)]
fn search_text(text: &str, patterns: &[Regex]) -> u64 {
    patterns
        .iter()
        .map(|pattern| pattern.find_iter(text).count() as u64)
        .sum()
}

#[inline(never)]
fn compress_batch(texts: &[Text], totals: &Totals) {
    let batch = name_batch(texts);
    auto_profiler_label!("compress", Encoding::Compress);
    auto_profiler_marker_text!(
        "Compress",
        Encoding::Compress,
        MarkerOptions::default(),
        &batch
    );
    for Text { text, .. } in texts {
        totals
            .compressed_bytes
            .fetch_add(compress_text(text), Ordering::Relaxed);
        totals.bytes.fetch_add(text.len() as u64, Ordering::Relaxed);
        totals.files.fetch_add(1, Ordering::Relaxed);
    }
}

#[inline(never)]
fn compress_text(text: &str) -> u64 {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let compressed = encoder
        .write_all(text.as_bytes())
        .and_then(|()| encoder.finish());
    compressed.expect("a write to memory succeeds").len() as u64
}

/// Runs the thread that mostly sleeps.
fn run_housekeeper(totals: &Totals, deadline: Instant) {
    let mut now = Instant::now();
    while now < deadline {
        now = sleep_a_while(NAP.min(deadline - now));
        let text = progress::describe(totals);
        add_text_marker(
            "Progress",
            gecko_profiler_category!(Other),
            MarkerOptions::default(),
            &text,
        );
    }
}

/// Sleeps, and returns the time of waking. The result also keeps this function on the stack:
/// without it, the compiler may turn the final call into a jump.
#[inline(never)]
fn sleep_a_while(time: Duration) -> Instant {
    auto_profiler_label!("asleep", Idle);
    thread::sleep(time);
    Instant::now()
}
