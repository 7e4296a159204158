//! What the profiler says to the person who set a variable or sent a signal: one line, on standard error.
//!
//! Not by `eprintln!`, which panics where nobody reads, nor by `std::io::stderr`, whose lock may be held for ever in the
//! child of a fork.

use std::io::Write;

use crate::platform::write_to_standard_error;

/// Says it on standard error, in one write, so that lines of several processes do not mix.
pub(super) fn tell(notice: &str) {
    write_to_standard_error(format!("gekkota: {notice}\n").as_bytes());
}

/// Prints what was asked for on standard output.
pub(super) fn print(text: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
