//! Prints the progress of the workers; the main thread does this while they work.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use gekkota::auto_profiler_label;

use crate::workload::Totals;

/// Prints the progress until the deadline: on a terminal one line that is rewritten, elsewhere one
/// line for each quarter of the time.
pub(crate) fn show(
    folder: &Path,
    workers: usize,
    totals: &Totals,
    started: Instant,
    deadline: Instant,
) {
    let time = deadline - started;
    let is_terminal = io::stdout().is_terminal();
    let step = if is_terminal {
        Duration::from_millis(100)
    } else {
        time / 4
    };
    print_ignoring_errors(&format!(
        "Profiling {workers} workers for {} s in {}\n",
        time.as_secs_f64(),
        folder.display()
    ));
    let mut next = started + step;
    while next < deadline {
        sleep_until(next);
        next += step;
        let line = format!(
            "{:5.1} s: {}",
            started.elapsed().as_secs_f64(),
            describe(totals)
        );
        print_ignoring_errors(&if is_terminal {
            format!("\r{line}\x1b[K")
        } else {
            format!("{line}\n")
        });
    }
    sleep_until(deadline);
    if is_terminal {
        print_ignoring_errors("\r\x1b[K");
    }
}

fn sleep_until(time: Instant) {
    auto_profiler_label!("asleep", Idle);
    thread::sleep(time.saturating_duration_since(Instant::now()));
}

/// Prints the text, and ignores errors: the work continues when the reader of a pipe has exited.
fn print_ignoring_errors(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Returns the totals as a sentence for the terminal and the “Progress” markers.
pub(crate) fn describe(totals: &Totals) -> String {
    let files = totals.files.load(Ordering::Relaxed);
    let matches = totals.matches.load(Ordering::Relaxed);
    let [text, compressed] = [&totals.bytes, &totals.compressed_bytes]
        .map(|bytes| bytes.load(Ordering::Relaxed) as f64 / 1e6);
    format!("{files} files, {text:.1} MB, {matches} matches, compressed to {compressed:.1} MB")
}
