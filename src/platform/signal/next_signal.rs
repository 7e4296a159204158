//! Changes the sampling signal of a running session.

use crate::platform::signal::fault_handlers::{keep_out_of_fault_handlers, keep_out_of_handler};
use crate::platform::signal::handler::{HandlerCheck, ensure_handler, free_signal};

/// Installs the profiler's handler for one of the default signals that has no foreign handler, and
/// returns that signal. `taken` is the sampling signal, which the application handles now. `None` if no
/// signal is free. An installation for another signal has set what the handler does. Cost: some system
/// calls.
pub(crate) fn take_free_signal(taken: i32) -> Option<i32> {
    let signal = free_signal()?;
    let is_installed = matches!(
        ensure_handler(signal),
        HandlerCheck::InPlace | HandlerCheck::Reinstalled
    );
    is_installed.then(|| {
        keep_out_of_fault_handlers(signal);
        keep_out_of_handler(taken, signal);
        signal
    })
}
