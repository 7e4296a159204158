//! Writes sampled allocations and their frees as markers of the main thread, as Gecko does. On one
//! track, the viewer can pair them, whichever threads they belong to.

use std::sync::atomic::Ordering;

use crate::allocations::{AllocationEvent, swap_events};
use crate::buffer::LaneHandle;
use crate::markers::built_in::NativeAllocation;
use crate::markers::{MarkerDestination, MarkerEntry, MarkerTiming, NewMarker, TypedPayload};
use crate::platform::{current_process_id, monotonic_now};
use crate::state::{Session, SessionCounts, find_thread};
use crate::types::{
    ProfilerTime, ProfilingCategoryPair, ThreadId, ThreadProfilingFeatures, TimeStamp,
};

/// Writes the events that have happened since the last call. Those that belong to no track are
/// counted.
///
/// `events` is empty before and after. It keeps its memory for the next call.
pub(super) fn write_allocation_events(
    session: &Session,
    lane: &LaneHandle<'_>,
    events: &mut Vec<AllocationEvent>,
) {
    if !swap_events(events) {
        return;
    }
    write_all(session, lane, events);
    events.clear();
}

fn write_all(session: &Session, lane: &LaneHandle<'_>, events: &[AllocationEvent]) {
    let main = ThreadId::from_number(current_process_id().to_number());
    let thread = find_thread(main).filter(|thread| {
        let reader = thread.unlocked_const_reader_and_atomic_rw();
        reader.begin_entry(ThreadProfilingFeatures::MARKERS) == Some(session.generation)
    });
    let Some(thread) = thread else {
        let count = &session.counts.allocations_without_track;
        if count.load(Ordering::Relaxed) == 0 {
            let why = "allocations have no track: the main thread is not profiled";
            session.log.add(why);
        }
        return SessionCounts::add(count, events.len() as u64);
    };
    let now = monotonic_now();
    for event in events {
        write_allocation(session, lane, thread.serial(), now, event);
    }
}

/// Writes the marker of an allocation or a free to the track of the thread with this serial number.
pub(crate) fn write_allocation(
    session: &Session,
    lane: &LaneHandle<'_>,
    thread: u64,
    now: TimeStamp,
    event: &AllocationEvent,
) {
    let destination = MarkerDestination {
        session: session.generation,
        thread,
        now,
    };
    let timing = MarkerTiming::instant_at(ProfilerTime::from_monotonic_ns(event.time.0));
    let marker = NewMarker {
        name: "Native allocation",
        category: ProfilingCategoryPair::Other(None).indices(),
        timing: &timing,
        stack: event.stack,
    };
    let payload = NativeAllocation {
        size: event.estimated_bytes,
        memory_address: event.address,
        thread_id: event.thread,
        sampled_size: event.size,
    };
    let payload = TypedPayload::new(&payload);
    let entry = MarkerEntry::new(&destination, session.process_start, &marker, payload);
    lane.put(session.generation, now, &entry);
}
