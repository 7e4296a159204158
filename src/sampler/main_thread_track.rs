//! Adds markers of the sampler to the main thread's track, where Gecko has them, too.

use crate::buffer::LaneHandle;
use crate::markers::{MarkerDestination, MarkerEntry, MarkerTiming, NewMarker, NewPayload};
use crate::platform::current_process_id;
use crate::state::{Session, find_thread};
use crate::threads::OffThreadRef;
use crate::types::{ProfilingCategoryPair, ThreadId, ThreadProfilingFeatures, TimeStamp};

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
        let main = ThreadId::from_number(current_process_id().to_number());
        Some(Self {
            session,
            lane,
            main: find_thread(main)?,
            now,
        })
    }

    /// Adds a marker. Returns false if the session records no markers of the main thread.
    pub(super) fn put(
        &self,
        name: &str,
        category: ProfilingCategoryPair,
        timing: &MarkerTiming,
        payload: impl NewPayload,
    ) -> bool {
        let main = self.main.unlocked_const_reader_and_atomic_rw();
        if main.begin_entry(ThreadProfilingFeatures::MARKERS) != Some(self.session.generation) {
            return false;
        }
        let destination = MarkerDestination {
            session: self.session.generation,
            thread: self.main.serial(),
            now: self.now,
        };
        let marker = NewMarker {
            name,
            category: category.indices(),
            timing,
            stack: 0,
        };
        let process_start = self.session.process_start;
        let entry = MarkerEntry::new(&destination, process_start, &marker, payload);
        self.lane.put(self.session.generation, self.now, &entry);
        true
    }
}
