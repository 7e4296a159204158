//! What the profiler says to the person who set a variable or sent a signal: one line, on standard error.
//!
//! Not by `eprintln!`, which panics where nobody reads, nor by `std::io::stderr` and `stdout`, whose locks may be held for
//! ever in the child of a fork.

use crate::platform::{StandardStream, write_to_standard};

/// Says it on standard error, in one write, so that lines of several processes do not mix.
pub(super) fn tell(notice: &str) {
    write_to_standard(
        StandardStream::Error,
        format!("gekkota: {notice}\n").as_bytes(),
    );
}

/// Prints what was asked for on standard output.
pub(super) fn print(text: &str) {
    write_to_standard(StandardStream::Output, text.as_bytes());
}
