//! The process's buffer. It stands for ever, so that a marker need not ask whether it does.

use std::cell::OnceCell;

use crate::base::{Generation, TimeStamp};
use crate::buffer::{ChunkedBuffer, Entry, LaneHandle};

static CORE_BUFFER: ChunkedBuffer = ChunkedBuffer::out_of_session();

thread_local! {
    /// Where this thread writes. The destructor gives it to the next thread.
    static OWN_LANE: OnceCell<LaneHandle<'static>> = const { OnceCell::new() };
}

/// In session only while the profiler is active.
#[doc(alias = "profiler_get_core_buffer")]
pub(crate) fn core_buffer() -> &'static ChunkedBuffer {
    &CORE_BUFFER
}

/// Gives the calling thread its lane, so that its first entry need not.
pub(crate) fn prepare_own_lane() {
    let _ = OWN_LANE.try_with(|own| {
        if own.get().is_none() {
            // Set meanwhile, by a handler that wrote an entry, it stays.
            let _ = own.set(CORE_BUFFER.take_lane());
        }
    });
}

/// The calling thread's lane, if it has one.
pub(crate) fn own_lane_index() -> Option<usize> {
    OWN_LANE.try_with(|own| own.get().map(LaneHandle::index)).ok().flatten()
}

/// Puts an entry of this session; false when that session runs no more, or there is no room.
#[inline]
pub(crate) fn put_entry(session: Generation, now: TimeStamp, entry: &impl Entry) -> bool {
    let put =
        |own: &OnceCell<LaneHandle<'static>>| own.get().map(|lane| lane.put(session, now, entry).is_some());
    match OWN_LANE.try_with(put) {
        Ok(Some(is_put)) => is_put,
        _ => put_first_entry(session, now, entry),
    }
}

/// The same for a thread without a lane. One that is ending, and has given its lane back already, takes one for this.
#[cold]
fn put_first_entry(session: Generation, now: TimeStamp, entry: &impl Entry) -> bool {
    prepare_own_lane();
    let own = OWN_LANE.try_with(|own| own.get().map(|lane| lane.put(session, now, entry).is_some()));
    own.ok().flatten().unwrap_or_else(|| CORE_BUFFER.take_lane().put(session, now, entry).is_some())
}
