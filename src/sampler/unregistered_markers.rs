//! Gecko's form of unregistered threads: their CPU use as markers of the main thread, for the feature
//! `unregisteredthreads`.
//!
//! Cost on each tick: 0.3 µs for each unregistered thread, and a marker for each one that has run.

use std::collections::HashMap;

use crate::buffer::LaneHandle;
use crate::markers::built_in::{UnregisteredThreadCPU, UnregisteredThreadLifetime};
use crate::markers::{MarkerTiming, ProfilerMarker, TypedPayload};
use crate::platform::{monotonic_now, thread_cpu_ns};
use crate::sampler::main_thread_track::MainThreadTrack;
use crate::state::Session;
use crate::threads::OffThreadRef;
use crate::types::{ProfilerTime, ProfilingCategoryPair, ThreadId, TimeStamp};

/// What the last tick has seen of an unregistered thread.
#[derive(Debug)]
struct Watched {
    thread: OffThreadRef,
    found_at: TimeStamp,
    cpu_ns: u64,
    seen_at: TimeStamp,
}

/// The unregistered threads whose CPU use is recorded as markers. Used by the sampler.
#[derive(Debug, Default)]
pub(crate) struct UnregisteredMarkers {
    watched: HashMap<ThreadId, Watched>,
}

impl UnregisteredMarkers {
    /// Adds markers for what these threads have done since the last call.
    pub(crate) fn add<'t>(
        &mut self,
        threads: impl Iterator<Item = &'t OffThreadRef>,
        session: &Session,
        lane: &LaneHandle<'static>,
    ) {
        let now = monotonic_now();
        let Some(track) = MainThreadTrack::find(session, lane, now).map(Track) else {
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
                track.add_cpu(&watched, cpu_ns - watched.cpu_ns);
            }
            (watched.cpu_ns, watched.seen_at) = (cpu_ns.max(watched.cpu_ns), now);
            if self.watched.try_reserve(1).is_ok() {
                self.watched.insert(tid, watched);
            }
        }
        gone.values().for_each(|watched| track.add_end(watched));
    }
}

/// Where the markers go.
struct Track<'a>(MainThreadTrack<'a>);

impl Track<'_> {
    fn add_cpu(&self, watched: &Watched, ran_ns: u64) {
        let elapsed_ns = self.0.now.since_ns(watched.seen_at).max(1);
        let marker = UnregisteredThreadCPU {
            thread_id: self.id_of(watched),
            cpu_time_ns: ran_ns,
            utilization: ran_ns as f64 / elapsed_ns as f64,
        };
        self.put(watched, watched.seen_at, &marker);
    }

    fn add_end(&self, watched: &Watched) {
        let has_registered = watched
            .thread
            .unlocked_const_reader_and_atomic_rw()
            .is_registered();
        let marker = UnregisteredThreadLifetime {
            thread_id: self.id_of(watched),
            thread_name: watched.thread.unlocked_const_reader_and_atomic_rw().name(),
            end_event: match has_registered {
                true => "Thread registered itself",
                false => "Thread disappeared",
            }
            .to_owned(),
        };
        self.put(watched, watched.found_at, &marker);
    }

    fn id_of(&self, watched: &Watched) -> ThreadId {
        watched.thread.unlocked_const_reader_and_atomic_rw().tid()
    }

    fn put<T: ProfilerMarker + 'static>(&self, watched: &Watched, start: TimeStamp, payload: &T) {
        let thread = watched.thread.unlocked_const_reader_and_atomic_rw();
        let name = format!("tid {} {}", thread.tid().to_number(), thread.name());
        let time = |at: TimeStamp| ProfilerTime::from_monotonic_ns(at.0);
        let timing = MarkerTiming::interval(time(start), time(self.0.now));
        let category = ProfilingCategoryPair::Profiler(None);
        (self.0).put(&name, category, &timing, TypedPayload::new(payload));
    }
}
