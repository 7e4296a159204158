//! Markers that the sampler adds to the main thread's track, where Gecko has them, too: sampled
//! allocations and their frees, and the CPU use of threads that have not registered.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use crate::allocations::{AllocationEvent, has_events, has_many_events, swap_events};
use crate::buffer::LaneHandle;
use crate::markers::built_in::{
    NativeAllocation, UnregisteredThreadCPU, UnregisteredThreadLifetime,
};
use crate::markers::{
    MarkerDestination, MarkerEntry, MarkerTiming, NewMarker, NewPayload, ProfilerMarker,
    TypedPayload,
};
use crate::platform::{main_thread_id, monotonic_now, thread_cpu_ns};
use crate::sampler::tick_context::TickContext;
use crate::state::{Session, SessionCounts, find_thread};
use crate::threads::OffThreadRef;
use crate::types::{
    ProfilerTime, ProfilingCategoryPair, ThreadId, ThreadProfilingFeatures, TimeStamp,
};

/// The main thread's track. Used by the sampler.
pub(super) struct MainThreadTrack<'a> {
    context: &'a TickContext<'a>,
    main: OffThreadRef,
    pub(super) now: TimeStamp,
}

impl<'a> MainThreadTrack<'a> {
    /// Returns the track, if the main thread has registered or the sampler has found it.
    pub(super) fn find(context: &'a TickContext<'a>, now: TimeStamp) -> Option<Self> {
        let main = find_thread(main_thread_id())?;
        Some(Self { context, main, now })
    }

    /// Returns the serial number of the main thread if the session records its markers.
    pub(super) fn recorded_thread(&self) -> Option<u64> {
        let main = self.main.unlocked_const_reader_and_atomic_rw();
        let session = main.begin_entry(ThreadProfilingFeatures::MARKERS);
        (session == Some(self.context.session.generation)).then(|| self.main.serial())
    }

    /// Adds a marker. Returns false if the session records no markers of the main thread.
    pub(super) fn put(
        &self,
        name: &str,
        category: ProfilingCategoryPair,
        timing: &MarkerTiming,
        payload: impl NewPayload,
    ) -> bool {
        let Some(thread) = self.recorded_thread() else {
            return false;
        };
        let marker = NewMarker {
            name,
            category: category.indices().0,
            timing,
            stack: 0,
        };
        let (session, lane) = (self.context.session, self.context.writer.lane);
        put_marker(session, lane, (thread, self.now), &marker, payload);
        true
    }
}

/// Writes a marker to the track of the thread with this serial number, at this time.
pub(super) fn put_marker(
    session: &Session,
    lane: &LaneHandle<'_>,
    (thread, now): (u64, TimeStamp),
    marker: &NewMarker<'_>,
    payload: impl NewPayload,
) {
    let destination = MarkerDestination {
        session: session.generation,
        thread,
        now,
        rarity: None,
    };
    let entry = MarkerEntry::new(&destination, session.process_start, marker, payload);
    lane.put(session.generation, now, &entry);
}

/// Writes the allocations and frees that have happened since the last call. On one track, the viewer
/// can pair them, whichever threads they belong to. Without a track for them, counts them. But if
/// `may_find_main_thread`, they wait for the next call.
///
/// `events` is empty before and after. It keeps its memory for the next call.
pub(super) fn write_allocation_events(
    context: &TickContext<'_>,
    events: &mut Vec<AllocationEvent>,
    may_find_main_thread: bool,
) {
    if !has_events() {
        return;
    }
    let now = monotonic_now();
    let track = MainThreadTrack::find(context, now);
    let thread = track.and_then(|track| track.recorded_thread());
    let waits = thread.is_none() && may_find_main_thread && !has_many_events();
    if waits || !swap_events(events) {
        return;
    }
    let session = context.session;
    if let Some(thread) = thread {
        for event in &*events {
            write_allocation(session, context.writer.lane, (thread, now), event);
        }
    } else {
        let count = &session.counts.allocations_without_track;
        if count.load(Ordering::Relaxed) == 0 {
            let why = "allocations have no track: the main thread is not profiled";
            session.log.add(why);
        }
        SessionCounts::add(count, events.len() as u64);
    }
    events.clear();
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

/// What the last tick has seen of an unregistered thread.
#[derive(Debug)]
struct Watched {
    thread: OffThreadRef,
    found_at: TimeStamp,
    cpu_ns: u64,
    seen_at: TimeStamp,
}

/// The threads that have not registered, in Gecko's form, for the feature `unregisteredthreads`:
/// their CPU use as markers. Used by the sampler.
///
/// Cost on each tick: 0.3 µs for each such thread, and a marker for each one that has run.
#[derive(Debug, Default)]
pub(crate) struct UnregisteredMarkers {
    watched: HashMap<ThreadId, Watched>,
}

impl UnregisteredMarkers {
    /// Adds markers for what these threads have done since the last call.
    pub(crate) fn add<'t>(
        &mut self,
        threads: impl Iterator<Item = &'t OffThreadRef>,
        context: &TickContext<'_>,
    ) {
        let now = monotonic_now();
        let Some(track) = MainThreadTrack::find(context, now) else {
            return;
        };
        let mut gone = std::mem::take(&mut self.watched);
        for thread in threads {
            let reader = thread.unlocked_const_reader_and_atomic_rw();
            let tid = reader.tid();
            // A thread that has just ended has no clock any more.
            let Some(cpu_ns) = thread_cpu_ns(tid).filter(|_| !reader.is_registered()) else {
                continue;
            };
            let known = gone.remove(&tid).filter(|known| known.thread.is(thread));
            let mut watched = known.unwrap_or_else(|| Watched {
                thread: thread.clone(),
                found_at: now,
                cpu_ns,
                seen_at: now,
            });
            if cpu_ns > watched.cpu_ns {
                watched.add_cpu(cpu_ns - watched.cpu_ns, &track);
            }
            (watched.cpu_ns, watched.seen_at) = (cpu_ns.max(watched.cpu_ns), now);
            if self.watched.try_reserve(1).is_ok() {
                self.watched.insert(tid, watched);
            }
        }
        gone.values().for_each(|watched| watched.add_end(&track));
    }
}

impl Watched {
    fn add_cpu(&self, ran_ns: u64, track: &MainThreadTrack<'_>) {
        let elapsed_ns = track.now.since_ns(self.seen_at).max(1);
        let marker = UnregisteredThreadCPU {
            thread_id: self.thread.tid(),
            cpu_time_ns: ran_ns,
            utilization: ran_ns as f64 / elapsed_ns as f64,
        };
        self.put(self.seen_at, &marker, track);
    }

    fn add_end(&self, track: &MainThreadTrack<'_>) {
        let reader = self.thread.unlocked_const_reader_and_atomic_rw();
        let end_event = match reader.is_registered() {
            true => "Thread registered itself",
            false => "Thread disappeared",
        };
        let marker = UnregisteredThreadLifetime {
            thread_id: reader.tid(),
            thread_name: reader.name(),
            end_event: end_event.to_owned(),
        };
        self.put(self.found_at, &marker, track);
    }

    fn put<T: ProfilerMarker + 'static>(
        &self,
        start: TimeStamp,
        payload: &T,
        track: &MainThreadTrack<'_>,
    ) {
        let thread = self.thread.unlocked_const_reader_and_atomic_rw();
        let name = format!("tid {} {}", thread.tid().to_number(), thread.name());
        let time = |at: TimeStamp| ProfilerTime::from_monotonic_ns(at.0);
        let timing = MarkerTiming::interval(time(start), time(track.now));
        let category = ProfilingCategoryPair::Profiler(None);
        track.put(&name, category, &timing, TypedPayload::new(payload));
    }
}
