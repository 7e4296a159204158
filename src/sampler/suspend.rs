//! Interrupts one thread on demand, with the sampler's protocol, but in a separate slot.
//!
//! The caller waits for the answer up to its timeout. The target thread never waits, as with the
//! sampler.

use std::time::Duration;

use crate::capture::{CaptureParts, SlotHandle, SlotPhase};
use crate::platform::{
    Sent, ThreadProbe, current_process_id, monotonic_now, send_request, signal_is_queued,
    sleep_until, thread_exists,
};
use crate::sampler::fork_gate::may_signal;
use crate::threads::ThreadRegistry;
use crate::types::{ProcessId, SuspendError, ThreadId};

/// Bounds of the time between two checks for the answer, in ns. An answer takes about 20 µs if the
/// thread is running, and otherwise as long as the scheduler takes.
const FIRST_STEP_NS: u64 = 20_000;
const LAST_STEP_NS: u64 = 1_000_000;
/// Bounds of the time until a lost request is sent again, in ns. A request is lost if another
/// signal of the same number is pending. The time doubles with each attempt.
const FIRST_RESEND_NS: u64 = 1_000_000;
const LAST_RESEND_NS: u64 = 64_000_000;

/// A pending request.
struct Request<'a> {
    process: ProcessId,
    thread: ThreadId,
    signal: i32,
    /// The thread's own slot, which the sampler uses.
    own: &'a SlotHandle,
    /// The additional slot of this request.
    slot: &'a SlotHandle,
    sequence: u32,
}

/// Captures these parts of a registered thread and returns the slot that holds them.
///
/// The timeout bounds only the wait for the thread. An answer that arrives later finds no request.
///
/// # Errors
/// Every variant of [`SuspendError`] except `Unsupported`.
pub(crate) fn suspend_and_capture(
    thread: ThreadId,
    parts: CaptureParts,
    signal: i32,
    timeout: Duration,
) -> Result<SlotHandle, SuspendError> {
    let process = current_process_id();
    let Some(registration) = ThreadRegistry::find(thread) else {
        return Err(match thread_exists(process, thread) {
            true => SuspendError::NotRegistered { thread },
            false => SuspendError::Gone { thread },
        });
    };
    let own = registration.unlocked_const_reader().slot();
    let own = own.ok_or(SuspendError::NoStack { thread })?;
    if ThreadProbe::new(thread).strict_mode_and_sleeps().0 {
        return Err(SuspendError::System {
            action: "interrupt the thread",
            answer: "it is in seccomp's strict mode".to_owned(),
        });
    }
    let slot = SlotHandle::acquire_additional(&own, thread, parts)?;
    let sequence = slot
        .state
        .request()
        .ok_or(SuspendError::NoStack { thread })?;
    let request = Request {
        process,
        thread,
        signal,
        own: &own,
        slot: &slot,
        sequence,
    };
    request.wait(timeout)?;
    Ok(slot)
}

impl Request<'_> {
    /// Sends the signal, again if it may have been lost, until the thread answers or the timeout
    /// ends.
    fn wait(&self, timeout: Duration) -> Result<(), SuspendError> {
        let start = monotonic_now();
        let deadline = start.plus_ns(timeout.as_nanos().try_into().unwrap_or(u64::MAX));
        let (mut step_ns, mut resend_ns) = (FIRST_STEP_NS, FIRST_RESEND_NS);
        let mut next_send = Some(start);
        loop {
            if next_send.is_some_and(|at| at <= monotonic_now())
                && self.slot.state.phase() == SlotPhase::Requested
                && may_signal()
            {
                self.send()?;
                next_send =
                    (!signal_is_queued(self.signal)).then(|| monotonic_now().plus_ns(resend_ns));
                resend_ns = (2 * resend_ns).min(LAST_RESEND_NS);
            }
            let now = monotonic_now();
            sleep_until(deadline.min(now.plus_ns(step_ns)));
            step_ns = (step_ns + step_ns / 2).min(LAST_STEP_NS);
            if self.slot.state.phase() == SlotPhase::Ready {
                self.resend_sampler_request();
                return Ok(());
            }
            let (thread, signal) = (self.thread, self.signal);
            if !thread_exists(self.process, thread) {
                return Err(SuspendError::Gone { thread });
            }
            if monotonic_now() >= deadline {
                self.slot.state.cancel();
                // The thread may have answered just before the request was canceled.
                if self.slot.state.phase() == SlotPhase::Ready {
                    self.resend_sampler_request();
                    return Ok(());
                }
                return Err(SuspendError::TimedOut {
                    thread,
                    signal,
                    timeout,
                });
            }
        }
    }

    fn send(&self) -> Result<(), SuspendError> {
        let (thread, ticket) = (self.thread, self.slot.ticket(self.sequence));
        match send_request(self.process, thread, self.signal, ticket) {
            Sent::Yes => Ok(()),
            Sent::NoSuchThread => Err(SuspendError::Gone { thread }),
            Sent::Refused => Err(SuspendError::System {
                action: "send the thread a signal",
                answer: std::io::Error::last_os_error().to_string(),
            }),
        }
    }

    /// Sends the sampler's request again if it was lost because this request's signal was pending.
    fn resend_sampler_request(&self) {
        if signal_is_queued(self.signal) || !may_signal() {
            return;
        }
        if let Some(sequence) = self.own.state.pending_request() {
            let ticket = self.own.ticket(sequence);
            // If the first signal was not lost after all, the thread still answers only once.
            send_request(self.process, self.thread, self.signal, ticket);
        }
    }
}
