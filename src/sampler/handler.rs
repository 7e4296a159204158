//! Stop 4 of 12: on the target thread, the request is checked.
//!
//! Stop 5 of 12: registers, stack, labels and time are copied into its slot and published.
//!
//! Runs in the signal handler, at any instruction of any program. It allocates nothing, takes no lock, panics nowhere,
//! unwinds nothing and waits for nobody; what it calls is async-signal-safe.

use crate::platform::{ArrivalInHandler, monotonic_now};
use crate::threads::find_slot_in_handler;

/// Answers a request, if anybody waits for it still.
pub(crate) fn capture_in_handler(arrival: &ArrivalInHandler<'_>) {
    let Some(slot) = find_slot_in_handler(arrival.ticket.slot) else { return };
    let Some(mut writer) = slot.begin_in_handler(arrival) else { return };
    writer.header.time = monotonic_now();
    writer.copy_stack_in_handler();
    writer.copy_labels_in_handler();
    writer.publish_in_handler();
}
