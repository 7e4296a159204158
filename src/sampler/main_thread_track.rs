//! Adds markers of the sampler to the main thread's track, where Gecko has them, too.

use crate::buffer::LaneHandle;
use crate::markers::{MarkerDestination, MarkerEntry, MarkerTiming, NewMarker, NewPayload};
use crate::platform::main_thread_id;
use crate::state::{Session, find_thread};
use crate::threads::OffThreadRef;
use crate::types::{ProfilingCategoryPair, ThreadProfilingFeatures, TimeStamp};

/// The main thread's track. Used by the sampler.
pub(super) struct MainThreadTrack<'a> {
    session: &'a Session,
    lane: &'a LaneHandle<'static>,
    main: OffThreadRef,
    pub(super) now: TimeStamp,
}

impl<'a> MainThreadTrack<'a> {
    /// Returns the track, if the main thread has registered or the sampler has found it.
    pub(super) fn find(
        session: &'a Session,
        lane: &'a LaneHandle<'static>,
        now: TimeStamp,
    ) -> Option<Self> {
        Some(Self {
            session,
            lane,
            main: find_thread(main_thread_id())?,
            now,
        })
    }

    /// Returns the serial number of the main thread if the session records its markers.
    pub(super) fn recorded_thread(&self) -> Option<u64> {
        let main = self.main.unlocked_const_reader_and_atomic_rw();
        let session = main.begin_entry(ThreadProfilingFeatures::MARKERS);
        (session == Some(self.session.generation)).then(|| self.main.serial())
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
        put_marker(
            self.session,
            self.lane,
            (thread, self.now),
            &marker,
            payload,
        );
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
