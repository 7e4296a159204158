//! The process-wide buffer. It is static, so a marker need not check whether it exists.

use std::cell::{Cell, OnceCell};

use crate::buffer::{ChunkedBuffer, Dropped, Entry, LaneHandle, LaneRef};
use crate::platform::{heavy_barrier, was_memory_available};
use crate::types::{Generation, TimeStamp};
use crate::util::{SMALL_TASK_BYTES, allocator_has};

/// The threads of the application, which write to it, open no files: the sampler looks how much memory
/// is left.
static CORE_BUFFER: ChunkedBuffer =
    ChunkedBuffer::out_of_session(heavy_barrier, was_memory_available);

thread_local! {
    /// The lane that this thread writes to. It has no destructor, so access does not check whether
    /// one has run.
    static OWN_LANE: Cell<Option<LaneRef<'static>>> = const { Cell::new(None) };
    /// Owns the lane in [`OWN_LANE`], and returns it when the thread exits.
    static OWN_LANE_HANDLE: OnceCell<OwnLane> = const { OnceCell::new() };
}

struct OwnLane(LaneHandle<'static>);

impl Drop for OwnLane {
    fn drop(&mut self) {
        OWN_LANE.set(None);
    }
}

/// Returns the process-wide buffer, which accepts entries only while the profiler is active.
#[doc(alias = "profiler_get_core_buffer")]
pub(crate) fn core_buffer() -> &'static ChunkedBuffer {
    &CORE_BUFFER
}

/// Assigns a lane to the calling thread before its first entry, which would otherwise assign one.
pub(crate) fn prepare_own_lane() {
    let _ = OWN_LANE_HANDLE.try_with(|own| {
        if own.get().is_none() {
            // `set` fails if a signal handler has written an entry since the check. The handler's
            // lane is kept.
            let _ = own.set(OwnLane(CORE_BUFFER.take_lane()));
        }
        OWN_LANE.set(own.get().map(|own| own.0.as_lane_ref()));
    });
}

/// Returns the index of the calling thread's lane, if it has one.
pub(crate) fn own_lane_index() -> Option<usize> {
    OWN_LANE_HANDLE
        .try_with(|own| own.get().map(|own| own.0.index()))
        .ok()
        .flatten()
}

/// Writes an entry of `session`. Returns false if that session is not the current one, or if the
/// buffer has no space.
#[inline(always)]
pub(crate) fn put_entry(session: Generation, now: TimeStamp, entry: impl Entry + Copy) -> bool {
    match OWN_LANE.get() {
        Some(lane) => CORE_BUFFER.put_in_lane(lane, session, now, entry).is_some(),
        None => put_first_entry(session, now, entry),
    }
}

/// Writes an entry of a thread without a lane. An exiting thread has already returned its lane, and
/// takes one for this entry only.
#[cold]
fn put_first_entry(session: Generation, now: TimeStamp, entry: impl Entry + Copy) -> bool {
    if !allocator_has(SMALL_TASK_BYTES) {
        CORE_BUFFER.count_dropped(Dropped::OutOfMemory);
        return false;
    }
    prepare_own_lane();
    match OWN_LANE.get() {
        Some(lane) => CORE_BUFFER.put_in_lane(lane, session, now, entry).is_some(),
        None => CORE_BUFFER.take_lane().put(session, now, &entry).is_some(),
    }
}
