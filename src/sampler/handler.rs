//! Stop 4 of 12: on the target thread, the request is checked.
//!
//! Stop 5 of 12: registers, stack, labels and time are copied into its slot and published.
//!
//! Runs in the signal handler, at any instruction of any program. It allocates nothing, takes no lock, panics nowhere,
//! unwinds nothing and waits for nobody; what it calls is async-signal-safe.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::platform::{
    ArrivalInHandler, SignalSource, current_thread_cpu_ns_in_handler, monotonic_now, thread_pointer,
};
use crate::threads::{find_slot_in_handler, find_slot_of_thread_in_handler};

/// The number of the timer with which the engines are tried; -1 when there is none.
pub(super) static TRIAL_TIMER: AtomicI32 = AtomicI32::new(-1);

/// Whether the thread's CPU clock is read for requests as well. For a timer's stop it always is, since nobody read it when
/// that began.
pub(super) static READS_CLOCK: AtomicBool = AtomicBool::new(false);

/// Answers a request or a timer, if anybody waits for it still. Whether it was one of ours.
pub(crate) fn capture_in_handler(arrival: &ArrivalInHandler<'_>) -> bool {
    let slot = match arrival.source {
        SignalSource::Request(ticket) => {
            let Some(slot) = find_slot_in_handler(ticket.slot) else {
                return true;
            };
            slot
        }
        SignalSource::Timer(number) => match find_slot_of_thread_in_handler(thread_pointer()) {
            Some(slot) if slot.has_timer_in_handler(number) => slot,
            _ => return TRIAL_TIMER.load(Ordering::Acquire) == number,
        },
    };
    let Some(mut writer) = slot.begin_in_handler(arrival) else {
        return true;
    };
    writer.header.time = monotonic_now();
    writer.header.event_loop = slot.event_delay().state_in_handler();
    writer.copy_stack_in_handler();
    writer.copy_labels_in_handler();
    let is_timer = matches!(arrival.source, SignalSource::Timer(_));
    if is_timer || READS_CLOCK.load(Ordering::Relaxed) {
        writer.header.cpu_ns = current_thread_cpu_ns_in_handler();
    }
    writer.publish_in_handler();
    true
}
