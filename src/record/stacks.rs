//! Stacks on demand, of another thread or of the calling thread.

use std::time::Duration;

use crate::backtrace::{BacktraceParts, CapturedBacktrace};
use crate::capture::CaptureParts;
use crate::platform::{
    has_foreign_handler, install_handler, keep_out_of_fault_handlers, prepare_handler,
    resolve_sampling_signal,
};
use crate::sampler::{SampledStack, capture_in_handler, suspend_and_capture};
use crate::session::{ensure_fork_handlers, running_session};
use crate::types::{StackFeatures, StartError, SuspendError, ThreadId, signal_name};

/// Copies the stack of the function that this one is inlined into.
#[inline(always)]
pub(crate) fn capture_backtrace() -> Option<CapturedBacktrace> {
    ensure_fork_handlers();
    SampledStack::prepare();
    CapturedBacktrace::capture_here(BacktraceParts::LabelsAndStack)
}

/// Unwinds a captured stack. May be called on another thread than the captured one.
pub(crate) fn resolve_backtrace(
    backtrace: &CapturedBacktrace,
    features: StackFeatures,
) -> SampledStack {
    // Names of functions of the API and their callees. They may be inlined into the innermost
    // frame, and are removed from it.
    let own_functions = &[
        "current",
        "current_registers",
        "capture_here",
        "capture_backtrace",
        "profiler_capture_backtrace",
        "profiler_suspend_and_sample_thread",
    ];
    SampledStack::of_backtrace(backtrace, features, own_functions)
}

/// See `profiler_suspend_and_sample_thread`. The target must not be the calling thread.
pub(crate) fn suspend_and_sample(
    thread: ThreadId,
    features: StackFeatures,
    timeout: Duration,
) -> Result<SampledStack, SuspendError> {
    // The fork handlers also take the locks of stacks on demand.
    ensure_fork_handlers();
    let signal = prepare_signal().map_err(|error| match error {
        StartError::System { action, answer } => SuspendError::System { action, answer },
        _ => SuspendError::Unsupported,
    })?;
    SampledStack::prepare();
    let parts = CaptureParts {
        stack: features.contains(StackFeatures::NATIVE),
        labels: features.contains(StackFeatures::LABELS),
    };
    let slot = suspend_and_capture(thread, parts, signal, timeout)?;
    match slot.captured() {
        Some(view) => Ok(SampledStack::of_capture(&view, thread, features)),
        // Should not happen: no other thread collects captures from this slot.
        None => Err(SuspendError::NoStack { thread }),
    }
}

/// Installs the handler for the running session's signal, or for the one that a session would
/// choose, and returns the signal's number. During a session, a foreign handler stays in place, and
/// another signal is chosen.
fn prepare_signal() -> Result<i32, StartError> {
    let session_signal = running_session().map(|(_, session)| session.signal());
    let free = session_signal.filter(|&signal| !has_foreign_handler(signal));
    let signal = resolve_sampling_signal(free)?;
    if session_signal.is_some() && has_foreign_handler(signal) {
        return Err(StartError::System {
            action: "send a signal",
            answer: format!(
                "got a foreign handler of {}, expected one of the profiler or none",
                signal_name(signal)
            ),
        });
    }
    prepare_handler();
    install_handler(signal, capture_in_handler)?;
    keep_out_of_fault_handlers(signal);
    Ok(signal)
}
