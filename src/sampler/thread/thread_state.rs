//! What a thread's sampler waits for between two ticks.

use crate::sampler::encode::IdlePeriod;
use crate::sampler::thread::pending_request::SignalRequest;

/// State of a thread between two ticks.
#[derive(Debug, Default)]
pub(crate) enum ThreadState {
    /// No request is pending. The thread may have run since its last sample.
    #[default]
    Running,
    /// The thread has not run since its stack was captured.
    Idle(IdlePeriod),
    /// A signal was sent, which the thread's handler answers.
    Signaled(SignalRequest),
}
