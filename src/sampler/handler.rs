//! Step 4 of 12: the handler on the target thread checks the request.
//!
//! Step 5 of 12: the handler copies registers, stack, labels and time into the thread's slot and
//! publishes them.
//!
//! Runs in the signal handler, at any instruction of any program. It does not allocate, lock,
//! panic, unwind or wait. Everything that it calls is async-signal-safe.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::capture::{find_slot_in_handler, find_slot_of_thread_in_handler};
use crate::platform::{
    ArrivalInHandler, SignalSource, SignalTicket, current_thread_cpu_ns_in_handler, monotonic_now,
    thread_pointer,
};
use crate::types::Generation;

/// Whether the handler also reads the thread's CPU clock for requests by signal. If the thread's timer
/// was to answer the request, it always does, because no other thread read the clock when the timer
/// fired.
pub(crate) static READS_CLOCK: AtomicBool = AtomicBool::new(false);

/// The session whose POSIX timers are answered, as their signals name it; 0 for none.
static SESSION_OF_TIMERS: AtomicU32 = AtomicU32::new(0);

/// Returns what the signals of a thread's POSIX timer carry: the number of its slot, and the session.
pub(crate) fn ticket_of_timers(slot: u16, session: Generation) -> SignalTicket {
    SignalTicket {
        slot,
        sequence: (session.to_number() as u32).max(1),
    }
}

/// Ignores the POSIX timers of other sessions from now on.
pub(crate) fn answer_timers_of(session: Generation) {
    let ticket = ticket_of_timers(0, session);
    SESSION_OF_TIMERS.store(ticket.sequence, Ordering::Relaxed);
}

/// Captures the interrupted thread if the signal belongs to a request that is still pending.
/// Returns whether the signal was one of the profiler's, even a stale one.
pub(crate) fn capture_in_handler(arrival: &ArrivalInHandler<'_>) -> bool {
    let slot = match arrival.source {
        SignalSource::Request(ticket) => {
            let Some(slot) = find_slot_in_handler(ticket.slot) else {
                return true;
            };
            slot
        }
        SignalSource::Unknown => {
            // A stale request is not told from a foreign signal; the foreign one is passed on.
            let Some(slot) = find_slot_of_thread_in_handler(thread_pointer()) else {
                return false;
            };
            slot
        }
        SignalSource::Timer(number) => match find_slot_of_thread_in_handler(thread_pointer()) {
            Some(slot) if slot.has_timer_in_handler(number) => slot,
            _ => return false,
        },
        SignalSource::CpuTimer(ticket) => {
            // A timer may outlive its session.
            let is_current = ticket.sequence == SESSION_OF_TIMERS.load(Ordering::Relaxed);
            let Some(slot) = find_slot_in_handler(ticket.slot).filter(|_| is_current) else {
                return true;
            };
            slot
        }
    };
    let of_batch = match arrival.source {
        SignalSource::CpuTimer(_) => slot.requested_of_batch_in_handler(),
        _ => None,
    };
    let is_timer = of_batch.is_some() || matches!(arrival.source, SignalSource::Timer(_));
    let Some(mut writer) = of_batch.unwrap_or(slot).begin_in_handler(arrival) else {
        return arrival.source != SignalSource::Unknown;
    };
    writer.header.time = monotonic_now();
    writer.header.event_loop = slot.event_delay().state_in_handler();
    writer.copy_stack_in_handler();
    writer.copy_labels_in_handler();
    if is_timer || READS_CLOCK.load(Ordering::Relaxed) {
        writer.header.cpu_ns = current_thread_cpu_ns_in_handler();
    }
    // One more reading of the clock, some 20 ns. A reading of the thread's CPU clock is a system call.
    writer.header.handler_ns = monotonic_now().since_ns(writer.header.time);
    writer.publish_in_handler();
    true
}
