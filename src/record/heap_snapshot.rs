//! A profile of the memory that is allocated now.

use crate::allocations::{AllocationEvent, live_allocations};
use crate::buffer::ChunkedBuffer;
use crate::platform::{heavy_barrier, is_memory_available, monotonic_now};
use crate::sampler::{write_allocation, write_allocation_stacks};
use crate::session::{FrozenProfile, freeze_for_heap, main_thread_id};
use crate::types::Features;

/// Bytes of the buffer for each live allocation: its marker, and a stack that it shares with none.
const BYTES_PER_ALLOCATION: u64 = 2048;
/// Minimum capacity of the buffer, in bytes.
const MIN_CAPACITY: u64 = 1 << 20;

/// Returns a profile of the sampled allocations that are alive, without any other data of the
/// session. Returns `None` if no session samples allocations, or if there is no memory.
pub(crate) fn heap_snapshot() -> Option<FrozenProfile> {
    let (session, main_serial, frozen) = freeze_for_heap(main_thread_id())?;
    if !session
        .settings
        .features
        .contains(Features::NATIVE_ALLOCATIONS)
    {
        return None;
    }
    let live = live_allocations()?;
    let capacity = MIN_CAPACITY + BYTES_PER_ALLOCATION * live.len() as u64;
    let buffer = ChunkedBuffer::out_of_session(heavy_barrier, is_memory_available);
    buffer.begin_session(session.generation, capacity);
    let snapshot = {
        let lane = buffer.take_lane_for_samples();
        let numbers = live.iter().map(|(_, allocation)| allocation.stack);
        let written = write_allocation_stacks(&session, &buffer, &lane, numbers);
        let now = monotonic_now();
        for (address, allocation) in &live {
            let stack = match written.contains_key(&allocation.stack) {
                true => allocation.stack,
                false => 0,
            };
            let event = AllocationEvent {
                address: *address,
                size: allocation.size,
                estimated_bytes: i64::try_from(allocation.estimated_bytes).unwrap_or(i64::MAX),
                stack,
                time: allocation.time,
                thread: allocation.thread,
            };
            write_allocation(&session, &lane, main_serial, now, &event);
        }
        drop(lane);
        buffer.snapshot()
    };
    Some(frozen.with_buffer(snapshot))
}
