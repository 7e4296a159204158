//! One thread is stopped on demand, by the protocol by which the sampler stops it, in a slot beside its own.
//!
//! The asking thread waits, up to its time-out; the stopped one waits for nobody, here as elsewhere.

use std::time::Duration;

use crate::base::{ProcessId, SuspendError, ThreadId};
use crate::platform::{
    Sent, SignalTicket, current_process_id, monotonic_now, send_request, signal_is_queued,
    sleep_until, thread_exists,
};
use crate::sampler::fork_gate::may_signal;
use crate::threads::{CaptureParts, NoSlot, SlotHandle, SlotPhase, ThreadRegistry};

/// An answer takes about 20 µs where the thread runs, and as long as the scheduler likes where it does not.
const FIRST_STEP_NS: u64 = 20_000;
const LAST_STEP_NS: u64 = 1_000_000;
/// A request that was lost, since another signal of the same number was pending, is sent again after so long, and then
/// after twice as long each time.
const FIRST_RESEND_NS: u64 = 1_000_000;
const LAST_RESEND_NS: u64 = 64_000_000;

/// A request that is out.
struct Request<'a> {
    process: ProcessId,
    thread: ThreadId,
    signal: i32,
    own: &'a SlotHandle,
    slot: &'a SlotHandle,
    sequence: u32,
}

/// Captures these parts of a registered thread into a slot, which holds them then.
///
/// Only the wait for the thread is bounded by the time-out. A thread that answers later finds that nobody waits.
///
/// # Errors
/// All of [`SuspendError`]'s but `Unsupported`.
pub(crate) fn suspend_and_capture(
    thread: ThreadId,
    parts: CaptureParts,
    signal: i32,
    timeout: Duration,
) -> Result<SlotHandle, SuspendError> {
    let process = current_process_id();
    let Some(registration) = ThreadRegistry::find(thread) else {
        let exists = thread_exists(process, thread);
        return Err(if exists {
            SuspendError::NotRegistered { thread }
        } else {
            SuspendError::Gone { thread }
        });
    };
    let own = registration
        .unlocked_const_reader()
        .slot()
        .ok_or(SuspendError::NoStack { thread })?;
    let slot = SlotHandle::acquire_beside(&own, parts).map_err(|error| match error {
        NoSlot::Unregistered => SuspendError::NotRegistered { thread },
        NoSlot::OutOfMemory => SuspendError::NoStack { thread },
    })?;
    let Some(sequence) = slot.request() else {
        return Err(SuspendError::NoStack { thread });
    };
    Request {
        process,
        thread,
        signal,
        own: &own,
        slot: &slot,
        sequence,
    }
    .wait(timeout)?;
    Ok(slot)
}

impl Request<'_> {
    /// Sends the signal until it is answered.
    fn wait(&self, timeout: Duration) -> Result<(), SuspendError> {
        let start = monotonic_now();
        let deadline = start.plus_ns(timeout.as_nanos().try_into().unwrap_or(u64::MAX));
        let (mut step_ns, mut resend_ns) = (FIRST_STEP_NS, FIRST_RESEND_NS);
        let mut next_send = Some(start);
        loop {
            if next_send.is_some_and(|at| at <= monotonic_now())
                && self.slot.phase() == SlotPhase::Requested
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
            if self.slot.phase() == SlotPhase::Ready {
                self.send_what_was_lost();
                return Ok(());
            }
            if !thread_exists(self.process, self.thread) {
                return Err(SuspendError::Gone {
                    thread: self.thread,
                });
            }
            if monotonic_now() >= deadline {
                self.slot.cancel();
                // It may have answered just now.
                if self.slot.phase() == SlotPhase::Ready {
                    self.send_what_was_lost();
                    return Ok(());
                }
                let (thread, signal) = (self.thread, self.signal);
                return Err(SuspendError::TimedOut {
                    thread,
                    signal,
                    timeout,
                });
            }
        }
    }

    fn send(&self) -> Result<(), SuspendError> {
        let ticket = SignalTicket {
            slot: self.slot.number(),
            sequence: self.sequence,
        };
        match send_request(self.process, self.thread, self.signal, ticket) {
            Sent::Yes => Ok(()),
            Sent::NoSuchThread => Err(SuspendError::Gone {
                thread: self.thread,
            }),
            Sent::Refused => Err(SuspendError::System {
                action: "send the thread a signal",
                answer: std::io::Error::last_os_error().to_string(),
            }),
        }
    }

    /// While ours was pending, one that the sampler sent was lost.
    fn send_what_was_lost(&self) {
        if signal_is_queued(self.signal) || self.own.has_timer() || !may_signal() {
            return;
        }
        if let Some(sequence) = self.own.pending_request() {
            let ticket = SignalTicket {
                slot: self.own.number(),
                sequence,
            };
            // One that is not lost yet is answered once.
            send_request(self.process, self.thread, self.signal, ticket);
        }
    }
}
