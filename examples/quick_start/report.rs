//! Formats the summary that is printed at the end.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;
use std::time::Duration;

use gekkota::Profile;
use gekkota::profile::{Format, ThreadSummary};

use crate::names::shorten;

const COLUMNS: usize = 100;
const BAR_COLUMNS: usize = 20;
/// Width of a percentage such as `100.0 %`, two spaces and the bar.
const PERCENT_AND_BAR_COLUMNS: usize = 7 + 2 + BAR_COLUMNS;
/// Maximum number of rows for all busy threads together.
const MAX_ROWS: usize = 11;

/// Prints the text. A pipe whose reader has exited is not an error.
pub(crate) fn print(text: &str) -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Returns the hottest functions of each thread, the cost of the profiler, and how to view the
/// profile.
pub(crate) fn summary(profile: &Profile, wall_time: Duration, out: &Path) -> String {
    let mut threads = profile.summarize();
    let is_busy = |thread: &ThreadSummary| thread.cpu * 20 > wall_time;
    threads.sort_by_key(|thread| !is_busy(thread));
    let busy = threads.iter().filter(|thread| is_busy(thread)).count();
    let rows_of_busy = MAX_ROWS.checked_div(busy).unwrap_or(1).clamp(1, 5);

    let mut text = format!(
        "\nFunctions by self time: the CPU time in the function itself, not in functions that it calls.\n\n\
         {:<12} {:>8}  {:<PERCENT_AND_BAR_COLUMNS$}  function\n",
        "thread", "CPU time", "% of the thread's CPU time"
    );
    for thread in &threads {
        text += &thread_rows(thread, if is_busy(thread) { rows_of_busy } else { 1 });
    }
    text + "\n" + &facts(profile, &threads, wall_time, out)
}

fn thread_rows(thread: &ThreadSummary, max_rows: usize) -> String {
    let mut rows = String::new();
    let mut head = format!("{:<12} {:>8}", thread.name, readable(thread.cpu));
    for function in thread
        .functions
        .iter()
        .filter(|function| !function.self_time.is_zero())
        .take(max_rows)
    {
        let share = function.self_time.as_secs_f64() / thread.cpu.as_secs_f64();
        let row = format!(
            "{head:<21}  {:>7}  {:<BAR_COLUMNS$}  ",
            format!("{:.1} %", share * 100.0),
            bar(share)
        );
        let width = COLUMNS - row.chars().count();
        rows = rows + &row + &shorten(&function.name, width) + "\n";
        head.clear();
    }
    if rows.is_empty() {
        rows = head + "  idle\n";
    }
    rows
}

fn readable(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 0.1 {
        format!("{:.1} ms", seconds * 1e3)
    } else {
        format!("{seconds:.2} s")
    }
}

/// Returns a bar whose length is `share` of [`BAR_COLUMNS`], drawn to an eighth of a column.
fn bar(share: f64) -> String {
    let eighths = (share * BAR_COLUMNS as f64 * 8.0).round() as usize;
    let part = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    "█".repeat(eighths / 8) + part
}

fn facts(profile: &Profile, threads: &[ThreadSummary], wall_time: Duration, out: &Path) -> String {
    let counts = profile.sampler_counts();
    let count = |wanted: &str| {
        counts
            .iter()
            .find(|(name, _)| *name == wanted)
            .map_or(0, |(_, count)| *count)
    };
    let cpu: Duration = threads.iter().map(|thread| thread.cpu).sum();
    let cost = Duration::from_nanos(count("sampler_cpu_ns"));
    let bytes = std::fs::metadata(out).map_or(0, |metadata| metadata.len());
    let file = out.display();
    let mut text = String::new();
    let lines = [
        format!(
            "Sampled  {:.1} s of CPU time on {} threads in {:.1} s: {} stacks captured, {} repeated while idle",
            cpu.as_secs_f64(),
            threads.len(),
            wall_time.as_secs_f64(),
            count("captured_samples"),
            count("same_samples"),
        ),
        format!(
            "Cost     {:.2} % of one CPU core: the profiler's thread used {:.0} ms of CPU time",
            cost.as_secs_f64() / wall_time.as_secs_f64() * 100.0,
            cost.as_secs_f64() * 1e3,
        ),
        format!("Saved    {file} ({:.1} MB)", bytes as f64 / 1e6),
        match Format::of_path(out) {
            Some(Format::Gecko | Format::Processed) => format!(
                "To view  drag the file onto https://profiler.firefox.com, or run: samply load {}",
                quoted(out)
            ),
            _ => "To view  the README lists what opens which format".to_owned(),
        },
    ];
    for line in lines {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// Quotes the path so that a shell reads it as one word.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+=:,@%".contains(letter);
    if text.chars().all(is_plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
