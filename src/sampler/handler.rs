//! Stop 4 of 12: on the target thread, the request is checked.
//!
//! Stop 5 of 12: registers, stack, labels and time are copied into its slot and published.
//!
//! Runs in the signal handler, at any instruction of any program. It allocates nothing, takes no lock, panics nowhere,
//! unwinds nothing and waits for nobody; what it calls is async-signal-safe.

use crate::platform::{
    ArrivalInHandler, current_thread_cpu_ns_in_handler, current_thread_sleeps_in_handler, monotonic_now,
};
use crate::threads::find_slot_in_handler;

/// Below its stack pointer a leaf function may use so many bytes, where the machine's ABI allows it.
const RED_ZONE_BYTES: u64 = if cfg!(target_arch = "x86_64") { 128 } else { 0 };

/// Answers a request, if anybody waits for it still.
pub(crate) fn capture_in_handler(arrival: &ArrivalInHandler<'_>) {
    let Some(slot) = find_slot_in_handler(arrival.ticket.slot) else { return };
    let Some(mut writer) = slot.begin_in_handler(arrival) else { return };
    writer.header.time = monotonic_now();
    writer.copy_stack_in_handler(RED_ZONE_BYTES);
    writer.copy_labels_in_handler();
    writer.header.sleeps = current_thread_sleeps_in_handler();
    writer.header.cpu_ns = current_thread_cpu_ns_in_handler();
    writer.publish_in_handler();
}
