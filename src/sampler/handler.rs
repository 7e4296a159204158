//! Stop 4 of 12: on the target thread, the request is checked.
//!
//! Stop 5 of 12: registers, stack, labels and time are copied into its slot and published.
//!
//! Runs in the signal handler, at any instruction of any program. It allocates nothing, takes no lock, panics nowhere,
//! unwinds nothing and waits for nobody; what it calls is async-signal-safe.

use crate::platform::{
    ArrivalInHandler, SignalSource, current_thread_cpu_ns_in_handler, monotonic_now, thread_pointer,
};
use crate::threads::{find_slot_in_handler, find_slot_of_thread_in_handler};

/// Answers a request or a timer, if anybody waits for it still. Whether it was one of ours.
pub(crate) fn capture_in_handler(arrival: &ArrivalInHandler<'_>) -> bool {
    let slot = match arrival.source {
        SignalSource::Request(ticket) => {
            let Some(slot) = find_slot_in_handler(ticket.slot) else { return true };
            slot
        }
        SignalSource::Timer(number) => match find_slot_of_thread_in_handler(thread_pointer()) {
            Some(slot) if slot.has_timer_in_handler(number) => slot,
            _ => return false,
        },
    };
    let Some(mut writer) = slot.begin_in_handler(arrival) else { return true };
    writer.header.time = monotonic_now();
    writer.copy_stack_in_handler();
    writer.copy_labels_in_handler();
    if let SignalSource::Timer(_) = arrival.source {
        // Nobody read it when the signal went out.
        writer.header.cpu_ns = current_thread_cpu_ns_in_handler();
    }
    writer.publish_in_handler();
    true
}
