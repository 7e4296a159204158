//! What the profiler says to the person who set a variable or sent a signal: one line, on standard error.
//!
//! Not by `eprintln!`, which panics where nobody reads.

use std::io::Write;

/// Says it on standard error, in one write, so that lines of several processes do not mix.
pub(super) fn tell(notice: &str) {
    let _ = std::io::stderr().write_all(format!("gekkota: {notice}\n").as_bytes());
}

/// Prints what was asked for on standard output.
pub(super) fn print(text: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
