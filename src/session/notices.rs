//! Notices on standard error, for the person who set a variable or sent a signal.
//!
//! This module does not use `eprintln!`, which panics if standard error is closed. It does not use
//! `std::io::stderr` or `stdout` either: in the child of a fork their locks may stay locked
//! forever.

use crate::platform::{StandardStream, write_to_standard};

/// Writes a notice to standard error in a single write, so that lines of several processes do not
/// mix.
pub(crate) fn notify(notice: &str) {
    write_to_standard(
        StandardStream::Error,
        format!("gekkota: {notice}\n").as_bytes(),
    );
}

/// Prints the help text, which the user requested, to standard output.
pub(crate) fn print(text: &str) {
    write_to_standard(StandardStream::Output, text.as_bytes());
}
