//! A profile of the memory that is allocated now.

use crate::allocations::{AllocationEvent, LiveAllocation, live_allocations};
use crate::buffer::{BufferSnapshot, ChunkedBuffer};
use crate::platform::{heavy_barrier, is_memory_available, main_thread_id, monotonic_now};
use crate::sampler::{allocation_stack_bytes, write_allocation, write_allocation_stacks};
use crate::session::{FrozenProfile, freeze_for_heap};
use crate::state::{Session, core_buffer};
use crate::types::Features;
use crate::util::{as_profiler_work, is_any_lock_held_on_current_thread};

/// Bytes of the buffer for each live allocation.
const BYTES_PER_ALLOCATION: u64 = 512;
/// Bytes of the buffer for each byte of kept stacks: no encoding is longer.
const BYTES_PER_STACK_BYTE: u64 = 2;
/// Minimum capacity of the buffer, in bytes.
const MIN_CAPACITY: u64 = 1 << 20;

/// Returns a profile of the sampled allocations that are alive, without any other data of the
/// session. Returns `None` if no session samples allocations, or if there is not enough memory.
pub(crate) fn heap_snapshot() -> Option<FrozenProfile> {
    if is_any_lock_held_on_current_thread() {
        return None;
    }
    // Their memory is not the application's.
    as_profiler_work(|| {
        let before = core_buffer().session()?;
        // Before the session is frozen: a thread hands over the stack before it lists the allocation,
        // and freezing waits until the sampler has unwound all stacks.
        let live = live_allocations()?;
        Some((before, live))
    })
    .and_then(|(before, live)| {
        let (session, main_serial, frozen) = freeze_for_heap(main_thread_id())?;
        let features = session.settings.features;
        let is_same = session.generation == before;
        if !is_same || !features.contains(Features::NATIVE_ALLOCATIONS) {
            return None;
        }
        let snapshot = as_profiler_work(|| write_live(&session, main_serial, &live));
        Some(frozen.with_buffer(snapshot))
    })
}

/// Writes the live allocations to a buffer of their own, as markers of the thread with this serial
/// number.
fn write_live(
    session: &Session,
    main_serial: u64,
    live: &[(u64, LiveAllocation)],
) -> BufferSnapshot {
    let capacity = MIN_CAPACITY
        + BYTES_PER_ALLOCATION * live.len() as u64
        + BYTES_PER_STACK_BYTE * allocation_stack_bytes();
    let buffer = ChunkedBuffer::out_of_session(heavy_barrier, is_memory_available);
    buffer.begin_session(session.generation, capacity, None);
    let lane = buffer.take_lane_for_samples();
    let numbers = live.iter().map(|(_, allocation)| allocation.stack);
    let written = write_allocation_stacks(session, &buffer, &lane, numbers);
    let now = monotonic_now();
    for (address, allocation) in live {
        let allocation = LiveAllocation {
            stack: match written.contains_key(&allocation.stack) {
                true => allocation.stack,
                false => 0,
            },
            ..*allocation
        };
        let event = AllocationEvent::allocation(*address, &allocation);
        write_allocation(session, &lane, (main_serial, now), &event);
    }
    drop(lane);
    buffer.snapshot()
}
