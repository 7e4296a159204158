//! Notices on standard error, for the person who set a variable or sent a signal, or whose
//! profile lacks names.
//!
//! This module does not use `eprintln!`, which panics if standard error is closed. It does not use
//! `std::io::stderr` or `stdout` either: in the child of a fork their locks may stay locked
//! forever.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::platform::{StandardStream, write_to_standard};
use crate::symbols::UnreadFile;

/// Maximum time that a text waits for a stream that no process reads. A reader on a busy machine
/// needs much less.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// Writes a notice to standard error, in a single write unless it is a terminal, so that lines of
/// several processes do not mix.
pub(crate) fn notify(notice: &str) {
    write_to_standard(
        StandardStream::Error,
        format!("gekkota: {notice}\n").as_bytes(),
        MAX_WAIT,
    );
}

/// Says, once in the process, that functions of a profile have no names, because no descriptor was
/// free to read the files of their modules.
pub(crate) fn notify_unnamed(unread: &[UnreadFile]) {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    let mut unread = unread.iter().filter(|file| file.lacks_descriptor);
    if let Some(UnreadFile { path, reason, .. }) = unread.next()
        && !IS_SAID.swap(true, Ordering::Relaxed)
    {
        notify(&format!(
            "cannot name functions in {} and {} other files: got \"{reason}\", expected a free \
             descriptor",
            path.display(),
            unread.count()
        ));
    }
}

/// Says that the process exits without the profile. Does not wait, and allocates nothing: the calling
/// thread may have interrupted the allocator.
pub(crate) fn notify_stuck_at_exit() {
    write_to_standard(
        StandardStream::Error,
        b"gekkota: cannot save the profile at exit: the thread that saves it does not run on, \
        expected it to get the locks of this process\n",
        Duration::ZERO,
    );
}

/// Says that the process ends during a session whose profile nothing saves at the end. Neither waits
/// nor allocates, as above.
pub(crate) fn notify_left_running() {
    write_to_standard(
        StandardStream::Error,
        b"gekkota: the program ended while it was profiled, and what it had not saved is lost; \
        MOZ_PROFILER_SHUTDOWN=<file> saves the profile at the end\n",
        Duration::ZERO,
    );
}

/// Prints a report, which the user requested, to standard error: standard output is the
/// application's.
pub(crate) fn print_report(report: &str) {
    let text = format!("{report}\n");
    write_to_standard(StandardStream::Error, text.as_bytes(), MAX_WAIT);
}

/// Prints the help text, which the user requested, to standard output.
pub(crate) fn print(text: &str) {
    write_to_standard(StandardStream::Output, text.as_bytes(), MAX_WAIT);
}
