//! Writes sampled allocations and their frees as markers of the main thread, as Gecko does. On one
//! track, the viewer can pair them, whichever threads they belong to.

use std::sync::atomic::Ordering;

use crate::allocations::{AllocationEvent, has_events, has_many_events, swap_events};
use crate::buffer::LaneHandle;
use crate::markers::built_in::NativeAllocation;
use crate::markers::{MarkerTiming, NewMarker, TypedPayload};
use crate::platform::monotonic_now;
use crate::sampler::main_thread_track::{MainThreadTrack, put_marker};
use crate::state::{Session, SessionCounts};
use crate::types::{ProfilerTime, ProfilingCategoryPair, TimeStamp};

/// Writes the events that have happened since the last call. Without a track for them, counts them.
/// But if `may_find_main_thread`, they wait for the next call.
///
/// `events` is empty before and after. It keeps its memory for the next call.
pub(super) fn write_allocation_events(
    session: &Session,
    lane: &LaneHandle<'static>,
    events: &mut Vec<AllocationEvent>,
    may_find_main_thread: bool,
) {
    if !has_events() {
        return;
    }
    let now = monotonic_now();
    let track = MainThreadTrack::find(session, lane, now);
    let thread = track.and_then(|track| track.recorded_thread());
    let waits = thread.is_none() && may_find_main_thread && !has_many_events();
    if !waits && swap_events(events) {
        write_all(session, lane, (thread, now), events);
        events.clear();
    }
}

fn write_all(
    session: &Session,
    lane: &LaneHandle<'static>,
    (thread, now): (Option<u64>, TimeStamp),
    events: &[AllocationEvent],
) {
    let Some(thread) = thread else {
        let count = &session.counts.allocations_without_track;
        if count.load(Ordering::Relaxed) == 0 {
            let why = "allocations have no track: the main thread is not profiled";
            session.log.add(why);
        }
        return SessionCounts::add(count, events.len() as u64);
    };
    for event in events {
        write_allocation(session, lane, (thread, now), event);
    }
}

/// Writes the marker of an allocation or a free to the track of the thread with this serial number.
pub(crate) fn write_allocation(
    session: &Session,
    lane: &LaneHandle<'_>,
    thread_and_now: (u64, TimeStamp),
    event: &AllocationEvent,
) {
    let marker = NewMarker {
        name: "Native allocation",
        category: ProfilingCategoryPair::Other(None).indices().0,
        timing: &MarkerTiming::instant_at(ProfilerTime::from_monotonic_ns(event.time.0)),
        stack: event.stack,
    };
    let payload = NativeAllocation {
        size: event.estimated_bytes,
        memory_address: event.address,
        thread_id: event.thread,
        sampled_size: event.size,
    };
    let payload = TypedPayload::new(&payload);
    put_marker(session, lane, thread_and_now, &marker, payload);
}
