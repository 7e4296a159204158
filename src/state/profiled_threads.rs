//! The threads that a session records something of, and those of them that have ended.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::{PsLock, ThreadFilter, ThreadProfilingFeatures};
use crate::platform::current_process_id;
use crate::state::session::Session;
use crate::threads::{OffThreadRef, ProfiledThreadData, ThreadRegistry};

/// A session's threads. To take one up or to end one takes as long with one thread as with a thousand.
#[derive(Debug)]
pub(crate) struct ProfiledThreads {
    session: Arc<Session>,
    filter: ThreadFilter,
    /// In no order; each thread knows its place.
    live: Vec<OffThreadRef>,
    /// In the order in which they ended.
    dead: VecDeque<OffThreadRef>,
    /// How many of the dead, from the front, have nothing that is still to be written.
    written: usize,
}

impl ProfiledThreads {
    pub(crate) fn new(session: Arc<Session>, filter: ThreadFilter) -> Self {
        Self {
            session,
            filter,
            live: Vec::new(),
            dead: VecDeque::new(),
            written: 0,
        }
    }

    /// The session begins: takes up all registered threads of which something is to be recorded.
    pub(crate) fn begin(&mut self, lock: &PsLock) {
        ThreadRegistry::for_each(lock, |thread| self.add(thread, lock));
    }

    /// Takes up a thread, if something is to be recorded of it.
    pub(crate) fn add(&mut self, thread: &OffThreadRef, lock: &PsLock) {
        let name = &thread.unlocked_const_reader().info().name;
        let is_selected = self.filter.selects(name, current_process_id());
        let features =
            ThreadProfilingFeatures::in_session(self.session.settings.features, is_selected);
        if features == ThreadProfilingFeatures::NOT_PROFILED {
            return;
        }
        let data = ProfiledThreadData {
            live_index: self.live.len(),
            end_position: None,
        };
        thread.locked_rw_from_any_thread().set_profiling_features(
            self.session.generation,
            features,
            data,
            lock,
        );
        self.live.push(thread.clone());
        self.session.thread_changes.raise();
    }

    /// A thread has ended, or unregistered; the buffer may still hold what was recorded of it.
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

    /// The session ends: nothing is recorded of any thread any more.
    pub(crate) fn end(&mut self, lock: &PsLock) {
        for thread in self.live.drain(..).chain(self.dead.drain(..)) {
            thread
                .locked_rw_from_any_thread()
                .clear_profiling_features(lock);
        }
        self.written = 0;
    }

    /// The threads that live and of which stacks or CPU times are recorded.
    pub(crate) fn sampled(&self) -> Vec<OffThreadRef> {
        let of_sampler =
            ThreadProfilingFeatures::SAMPLING | ThreadProfilingFeatures::CPU_UTILIZATION;
        let is_sampled = |thread: &&OffThreadRef| {
            thread
                .unlocked_const_reader_and_atomic_rw()
                .profiling_features()
                .intersects(of_sampler)
        };
        self.live.iter().filter(is_sampled).cloned().collect()
    }

    /// All of which something may have been recorded, dead ones that the buffer may hold data of included; in no order.
    pub(crate) fn all(&self) -> Vec<OffThreadRef> {
        self.live.iter().chain(&self.dead).cloned().collect()
    }

    /// Everything of the threads that have ended is written, but of those that the sampler `still_writes` of: notes where
    /// the buffer ends.
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

    /// Drops the dead of which nothing can lie in a buffer that begins there; not those that ended before anything was
    /// recorded.
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
                dead.locked_rw_from_any_thread()
                    .clear_profiling_features(lock)
            });
            self.written -= 1;
        }
    }
}
