//! The threads that a session records. Ended threads are kept while the buffer may hold their data.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::platform::current_process_id;
use crate::state::session::Session;
use crate::threads::{OffThreadRef, ProfiledThreadData, ThreadRegistry};
use crate::types::{ThreadFilter, ThreadProfilingFeatures};
use crate::util::PsLock;

/// The threads of a session. Adding or ending a thread takes the same time with one thread as with
/// a thousand.
#[derive(Debug)]
pub(crate) struct ProfiledThreads {
    session: Arc<Session>,
    filter: ThreadFilter,
    /// For each filter, whether it has selected a thread.
    matched: Vec<bool>,
    /// Live threads, unordered. Each thread stores its index.
    live: Vec<OffThreadRef>,
    /// Ended threads, in the order in which they ended.
    dead: VecDeque<OffThreadRef>,
    /// Number of ended threads, from the front, for which no more data will be written.
    written: usize,
}

impl ProfiledThreads {
    pub(crate) fn new(session: Arc<Session>, filter: ThreadFilter) -> Self {
        Self {
            matched: vec![false; session.settings.filters.len()],
            session,
            filter,
            live: Vec::new(),
            dead: VecDeque::new(),
            written: 0,
        }
    }

    /// Adds all registered threads that the session records. Called when the session begins.
    pub(crate) fn begin(&mut self, lock: &PsLock) {
        ThreadRegistry::for_each(lock, |thread| self.add(thread, lock));
    }

    /// Adds a thread if the session records it.
    pub(crate) fn add(&mut self, thread: &OffThreadRef, lock: &PsLock) {
        let name = &thread.unlocked_const_reader().info().name;
        let is_selected = self.filter.selects(name, current_process_id());
        let matches = self.filter.matches(name, current_process_id());
        (self.matched.iter_mut().zip(matches)).for_each(|(matched, matches)| *matched |= matches);
        let features =
            ThreadProfilingFeatures::in_session(self.session.settings.features, is_selected);
        if features == ThreadProfilingFeatures::NOT_PROFILED {
            return;
        }
        let data = ProfiledThreadData {
            live_index: self.live.len(),
            end_position: None,
        };
        thread
            .unlocked_rw_for_locked_profiler()
            .set_profiling_features(self.session.generation, features, data, lock);
        self.live.push(thread.clone());
        self.session.thread_changes.raise();
    }

    /// Moves a thread that has exited or unregistered to the ended threads. The buffer may still
    /// hold its data.
    pub(crate) fn end_thread(&mut self, thread: &OffThreadRef, lock: &PsLock) {
        let Some(data) = thread
            .unlocked_rw_for_locked_profiler()
            .profiled_thread_data(lock)
        else {
            return;
        };
        self.dead.push_back(self.live.swap_remove(data.live_index));
        if let Some(moved) = self.live.get(data.live_index) {
            let moved = moved.unlocked_rw_for_locked_profiler();
            moved.update_profiled_thread_data(lock, |moved| moved.live_index = data.live_index);
        }
        self.session.thread_changes.raise();
    }

    /// Ends the recording of all threads. Called when the session ends.
    pub(crate) fn end(&mut self, lock: &PsLock) {
        for thread in self.live.drain(..).chain(self.dead.drain(..)) {
            thread
                .unlocked_rw_for_locked_profiler()
                .clear_profiling_features(lock);
        }
        self.written = 0;
    }

    /// Returns the live threads whose stacks or CPU times are recorded.
    pub(crate) fn sampled(&self) -> Vec<OffThreadRef> {
        let sampler_features =
            ThreadProfilingFeatures::SAMPLING | ThreadProfilingFeatures::CPU_UTILIZATION;
        let is_sampled = |thread: &&OffThreadRef| {
            thread
                .unlocked_const_reader_and_atomic_rw()
                .profiling_features()
                .intersects(sampler_features)
        };
        self.live.iter().filter(is_sampled).cloned().collect()
    }

    /// Returns the filters that have selected no thread of the session, except for filters that
    /// select another process.
    pub(crate) fn unmatched_filters(&self) -> Vec<String> {
        let names_other = self.filter.names_other_process(current_process_id());
        (self.session.settings.filters.iter().zip(&self.matched))
            .zip(names_other)
            .filter(|((_, matched), names_other)| !**matched && !names_other)
            .map(|((filter, _), _)| filter.clone())
            .collect()
    }

    /// Returns all recorded threads, unordered, including ended ones that may still have data in
    /// the buffer.
    pub(crate) fn all(&self) -> Vec<OffThreadRef> {
        self.live.iter().chain(&self.dead).cloned().collect()
    }

    /// Marks ended threads as completely written, up to the first one that the sampler
    /// `still_writes`. Stores `buffer_end` as the end of their data.
    pub(crate) fn set_written(
        &mut self,
        buffer_end: u64,
        still_writes: impl Fn(&OffThreadRef) -> bool,
        lock: &PsLock,
    ) {
        let ended = self
            .dead
            .range(self.written..)
            .take_while(|dead| !still_writes(dead));
        self.written += ended
            .inspect(|dead| {
                let dead = dead.unlocked_rw_for_locked_profiler();
                dead.update_profiled_thread_data(lock, |data| data.end_position = Some(buffer_end));
            })
            .count();
    }

    /// Drops ended threads whose data ended before `buffer_start`. Keeps those whose end is not
    /// recorded yet.
    #[doc(alias = "DiscardExpiredDeadProfiledThreads")]
    pub(crate) fn drop_expired(&mut self, buffer_start: u64, lock: &PsLock) {
        let is_expired = |dead: &OffThreadRef| {
            let data = dead
                .unlocked_rw_for_locked_profiler()
                .profiled_thread_data(lock);
            data.and_then(|data| data.end_position)
                .is_some_and(|end| end < buffer_start)
        };
        while self.dead.front().is_some_and(is_expired) {
            let expired = self.dead.pop_front();
            expired.inspect(|dead| {
                dead.unlocked_rw_for_locked_profiler()
                    .clear_profiling_features(lock)
            });
            self.written -= 1;
        }
    }
}
