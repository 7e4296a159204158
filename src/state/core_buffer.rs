//! The process's buffer. It stands for ever, so that a marker need not ask whether it does.

use std::cell::{Cell, OnceCell};

use crate::base::{Generation, TimeStamp};
use crate::buffer::{ChunkedBuffer, Entry, LaneHandle, LaneRef};
use crate::platform::heavy_barrier;

static CORE_BUFFER: ChunkedBuffer = ChunkedBuffer::out_of_session(heavy_barrier);

thread_local! {
    /// Where this thread writes. Without a destructor, so that it is found without asking whether that has run.
    static OWN_LANE: Cell<Option<LaneRef<'static>>> = const { Cell::new(None) };
    /// The same, to be given back at the thread's end.
    static OWN_LANE_HANDLE: OnceCell<OwnLane> = const { OnceCell::new() };
}

struct OwnLane(LaneHandle<'static>);

impl Drop for OwnLane {
    fn drop(&mut self) {
        OWN_LANE.set(None);
    }
}

/// In session only while the profiler is active.
#[doc(alias = "profiler_get_core_buffer")]
pub(crate) fn core_buffer() -> &'static ChunkedBuffer {
    &CORE_BUFFER
}

/// Gives the calling thread its lane, so that its first entry need not.
pub(crate) fn prepare_own_lane() {
    let _ = OWN_LANE_HANDLE.try_with(|own| {
        if own.get().is_none() {
            // Set meanwhile, by a handler that wrote an entry, it stays.
            let _ = own.set(OwnLane(CORE_BUFFER.take_lane()));
        }
        OWN_LANE.set(own.get().map(|own| own.0.as_lane_ref()));
    });
}

/// The calling thread's lane, if it has one.
pub(crate) fn own_lane_index() -> Option<usize> {
    OWN_LANE_HANDLE
        .try_with(|own| own.get().map(|own| own.0.index()))
        .ok()
        .flatten()
}

/// Puts an entry of this session; false when that session runs no more, or there is no room.
#[inline(always)]
pub(crate) fn put_entry(session: Generation, now: TimeStamp, entry: impl Entry + Copy) -> bool {
    match OWN_LANE.get() {
        Some(lane) => CORE_BUFFER.put_in_lane(lane, session, now, entry).is_some(),
        None => put_first_entry(session, now, entry),
    }
}

/// The same for a thread without a lane. One that is ending, and has given its lane back already, takes one for this.
#[cold]
fn put_first_entry(session: Generation, now: TimeStamp, entry: impl Entry + Copy) -> bool {
    prepare_own_lane();
    match OWN_LANE.get() {
        Some(lane) => CORE_BUFFER.put_in_lane(lane, session, now, entry).is_some(),
        None => CORE_BUFFER.take_lane().put(session, now, &entry).is_some(),
    }
}
