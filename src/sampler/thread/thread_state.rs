//! What a thread's sampler waits for between two ticks.

use std::sync::atomic::AtomicU64;

use crate::capture::SlotHandle;
use crate::platform::monotonic_now;
use crate::sampler::encode::IdlePeriod;
use crate::sampler::thread::pending_request::{SignalRequest, TimerRequest};
use crate::sampler::tick::TickContext;
use crate::state::SessionCounts;
use crate::types::TimeStamp;

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
    /// The thread's own timer is to interrupt it. No signal was sent.
    TimerArmed(TimerRequest),
}

impl ThreadState {
    /// Counts the ticks that a capture would have answered that gives no sample. `count` counts the
    /// capture.
    #[cold]
    pub(crate) fn count_unused_capture(
        &self,
        slot: &SlotHandle,
        answered: TimeStamp,
        cpu_ns: Option<u64>,
        context: &TickContext<'_>,
        count: &AtomicU64,
    ) {
        let ticks = match self {
            Self::Signaled(request) => {
                slot.clear_canceled_request();
                match request.idle_run(answered, monotonic_now(), cpu_ns, context.interval_ns()) {
                    Ok(run) => run.map_or(0, |run| run.ticks),
                    Err(unanswered) => unanswered,
                }
            }
            Self::TimerArmed(request) => request.ticks(),
            // Without a request the slot has no capture of this session.
            Self::Running | Self::Idle(_) => return,
        };
        SessionCounts::add(count, 1);
        SessionCounts::add(&context.session.counts.unanswered_ticks, ticks + 1);
    }
}
