//! Step 4 of 12: the handler on the target thread checks the request.
//!
//! Step 5 of 12: the handler copies registers, stack, labels and time into the thread's slot and
//! publishes them.
//!
//! Runs in the signal handler, at any instruction of any program. It does not allocate, lock,
//! panic, unwind or wait. Everything that it calls is async-signal-safe.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::capture::{
    find_slot_in_handler, find_slot_of_event_in_handler, find_slot_of_thread_in_handler,
};
use crate::platform::{
    ArrivalInHandler, SignalSource, current_thread_cpu_ns_in_handler, monotonic_now, thread_pointer,
};

/// Maximum time that a thread runs on before a signal reaches it, in ns. A thread that answers later
/// has waited for a processor, or was in the kernel; its CPU clock tells which.
pub(crate) const SIGNAL_DELAY_NS: u64 = 200_000;

/// Whether the handler reads the thread's CPU clock for each request by signal, and not only for those
/// that are answered late.
pub(crate) static READS_CLOCK: AtomicBool = AtomicBool::new(false);

/// Captures the interrupted thread if the signal belongs to a request that is still pending.
/// Returns whether the signal was one of the profiler's, even a stale one.
pub(crate) fn capture_in_handler(arrival: &ArrivalInHandler<'_>) -> bool {
    let found = match arrival.source {
        SignalSource::Request(ticket) => match find_slot_in_handler(ticket.slot) {
            None => return true,
            found => found,
        },
        // Here, a stale request looks like a foreign signal. A foreign signal is passed on.
        SignalSource::Unknown => find_slot_of_thread_in_handler(thread_pointer()),
        SignalSource::Event(number) => find_slot_of_event_in_handler(number).or_else(|| {
            let slot = find_slot_of_thread_in_handler(thread_pointer())?;
            slot.takes_old_event_in_handler().then_some(slot)
        }),
    };
    let Some(slot) = found else {
        return false;
    };
    let of_batch = match arrival.source {
        SignalSource::Event(_) => {
            let of_batch = slot.requested_of_batch_in_handler();
            slot.uncaptured
                .fetch_add(u32::from(of_batch.is_none()), Ordering::Relaxed);
            of_batch
        }
        SignalSource::Request(_) | SignalSource::Unknown => None,
    };
    let Some(mut writer) = of_batch.unwrap_or(slot).begin_in_handler(arrival) else {
        return arrival.source != SignalSource::Unknown;
    };
    let now = monotonic_now();
    let is_clock_read = of_batch.is_some()
        || slot.waited_ns_in_handler(now) >= SIGNAL_DELAY_NS
        || READS_CLOCK.load(Ordering::Relaxed);
    // Between this and the end, another thread may take the processor. Each reading is a system call.
    let cpu_ns = is_clock_read.then(current_thread_cpu_ns_in_handler);
    writer.header.time = now;
    writer.header.event_loop = slot.event_delay().state_in_handler();
    writer.copy_stack_in_handler();
    writer.copy_labels_in_handler();
    if is_clock_read {
        writer.header.cpu_ns = current_thread_cpu_ns_in_handler();
    }
    writer.header.handler_ns = match cpu_ns {
        Some(cpu_ns) if cpu_ns > 0 && writer.header.cpu_ns > 0 => {
            writer.header.cpu_ns.saturating_sub(cpu_ns)
        }
        // If it took longer, another thread had the processor.
        _ => monotonic_now().since_ns(now).min(SIGNAL_DELAY_NS),
    };
    writer.publish_in_handler();
    true
}
