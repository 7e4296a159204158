//! The threads that a session records. Ended threads are kept while the buffer may hold their data,
//! within limits of size and age.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::platform::current_process_id;
use crate::state::expiring_list::KeptKind;
use crate::state::session::Session;
use crate::state::session_counts::SessionCounts;
use crate::threads::{OffThreadRef, ProfiledThreadData, ThreadRegistry};
use crate::types::{KeptLimits, ThreadFilter, ThreadId, ThreadProfilingFeatures, TimeStamp};
use crate::util::{PsLock, try_vec};

/// Maximum number of ended threads without any entry; the newest ones are kept. Each takes about
/// 540 bytes of a profile, which show only that the thread existed.
const MAX_EMPTY_THREADS: usize = 1000;

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
    /// Live threads that have not registered.
    unregistered: HashMap<ThreadId, OffThreadRef>,
    // Each list of ended threads is in the order in which they ended.
    /// Ended threads for which the sampler may still write data.
    ending: VecDeque<OffThreadRef>,
    /// Ended threads that are completely written and have no entry in the buffer.
    empty: VecDeque<OffThreadRef>,
    /// Ended threads that are completely written and have entries in the buffer.
    dead: VecDeque<OffThreadRef>,
    /// Size of the ended threads, in bytes.
    pub(crate) ended_bytes: u64,
    limits: KeptLimits,
    /// Latest end of the threads that were dropped although they may have entries: from then on, no
    /// thread with entries is missing.
    pub(crate) complete_since: Option<TimeStamp>,
}

/// Returns how much memory an ended thread takes in these lists, in bytes.
fn ended_bytes(thread: &OffThreadRef) -> u64 {
    thread.unlocked_const_reader().data_bytes() + size_of::<OffThreadRef>() as u64
}

fn ended_at(thread: &OffThreadRef) -> Option<TimeStamp> {
    thread
        .unlocked_const_reader_and_atomic_rw()
        .unregistered_at()
}

impl ProfiledThreads {
    pub(crate) fn new(session: Arc<Session>, filter: ThreadFilter) -> Self {
        Self {
            matched: vec![false; session.settings.filters.len()],
            limits: session.settings.kept_limits(KeptKind::EndedThreads),
            session,
            filter,
            live: Vec::new(),
            unregistered: HashMap::new(),
            ending: VecDeque::new(),
            empty: VecDeque::new(),
            dead: VecDeque::new(),
            ended_bytes: 0,
            complete_since: None,
        }
    }

    /// Adds all registered threads that the session records. Called when the session begins.
    pub(crate) fn begin(&mut self, lock: &PsLock) {
        ThreadRegistry::for_each(lock, |thread| {
            self.add(thread, lock);
        });
    }

    /// Adds a thread if the session records it, and returns whether it does. If it already records
    /// the thread, it continues to: a thread's name may change. But it no longer samples a thread
    /// whose new name is excluded.
    pub(crate) fn add(&mut self, thread: &OffThreadRef, lock: &PsLock) -> bool {
        let unlocked = thread.unlocked_rw_for_locked_profiler();
        let name = unlocked.name();
        let tid = unlocked.tid();
        let process = current_process_id();
        let is_selected = self.filter.selects(&name, tid, process);
        let matches = self.filter.matches(&name, tid, process);
        (self.matched.iter_mut().zip(matches)).for_each(|(matched, matches)| *matched |= matches);
        let features =
            ThreadProfilingFeatures::in_session(self.session.settings.features, is_selected);
        let before = unlocked.profiled_thread_data(lock);
        if features == ThreadProfilingFeatures::NOT_PROFILED {
            if let Some(data) = before.filter(|_| self.filter.excludes(&name, tid, process)) {
                unlocked.set_profiling_features(self.session.generation, features, data, lock);
                self.session.thread_changes.raise();
            }
            return before.is_some();
        }
        let data = before.unwrap_or(ProfiledThreadData {
            live_index: self.live.len(),
            end_position: None,
        });
        let features = features | unlocked.profiling_features();
        unlocked.set_profiling_features(self.session.generation, features, data, lock);
        if before.is_none() {
            self.live.push(thread.clone());
        }
        // Without memory, a thread that registers later is two threads in the profile.
        if unlocked.is_registered() {
            self.forget_unregistered(thread);
        } else if self.unregistered.try_reserve(1).is_ok() {
            self.unregistered.insert(tid, thread.clone());
        }
        self.note_fact(thread);
        self.session.thread_changes.raise();
        true
    }

    /// Records a thread in the crash file.
    fn note_fact(&self, thread: &OffThreadRef) {
        if let Some(facts) = &self.session.crash_facts {
            facts.add_thread(thread);
        }
    }

    /// Returns the live thread with this id that the sampler has found and that has not registered.
    pub(crate) fn find_unregistered(&self, tid: ThreadId) -> Option<OffThreadRef> {
        self.unregistered.get(&tid).cloned()
    }

    /// Returns the threads that have unregistered since this time.
    pub(crate) fn unregistered_since(&self, since: TimeStamp) -> HashSet<ThreadId> {
        let lists = [&self.ending, &self.empty, &self.dead];
        let ended = lists.into_iter().flat_map(|list| {
            let newest_first = list.iter().rev();
            newest_first.take_while(move |ended| ended_at(ended) >= Some(since))
        });
        let ended = ended.map(OffThreadRef::unlocked_const_reader_and_atomic_rw);
        let had_registered = ended.filter(|thread| thread.is_registered());
        had_registered.map(|thread| thread.tid()).collect()
    }

    fn forget_unregistered(&mut self, thread: &OffThreadRef) {
        let tid = thread.unlocked_const_reader_and_atomic_rw().tid();
        if self
            .unregistered
            .get(&tid)
            .is_some_and(|known| known.is(thread))
        {
            self.unregistered.remove(&tid);
        }
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
        self.forget_unregistered(thread);
        self.note_fact(thread);
        let ended = self.live.swap_remove(data.live_index);
        self.ended_bytes += ended_bytes(&ended);
        let dropped = match self.ending.try_reserve(1) {
            Ok(()) => {
                self.ending.push_back(ended);
                None
            }
            // Without memory for a longer list, this thread is dropped.
            Err(_) => Some(ended),
        };
        if let Some(moved) = self.live.get(data.live_index) {
            let moved = moved.unlocked_rw_for_locked_profiler();
            moved.update_profiled_thread_data(lock, |moved| moved.live_index = data.live_index);
        }
        if let Some(dropped) = dropped {
            self.drop_with_entries(dropped, lock);
        }
        self.drop_excess(lock);
        self.session.thread_changes.raise();
    }

    /// Ends the recording of all threads. Called when the session ends.
    pub(crate) fn end(&mut self, lock: &PsLock) {
        self.unregistered.clear();
        let ended = [&mut self.ending, &mut self.empty, &mut self.dead];
        let ended = ended.into_iter().flat_map(|list| list.drain(..));
        for thread in self.live.drain(..).chain(ended) {
            thread
                .unlocked_rw_for_locked_profiler()
                .clear_profiling_features(lock);
        }
        self.ended_bytes = 0;
    }

    /// Returns the live threads whose stacks or CPU times are recorded; `None` if there is not
    /// enough memory for the list.
    pub(crate) fn sampled(&self) -> Option<Vec<OffThreadRef>> {
        let sampler_features =
            ThreadProfilingFeatures::SAMPLING | ThreadProfilingFeatures::CPU_UTILIZATION;
        let is_sampled = |thread: &&OffThreadRef| {
            thread
                .unlocked_const_reader_and_atomic_rw()
                .profiling_features()
                .intersects(sampler_features)
        };
        let mut sampled = try_vec(self.live.len())?;
        sampled.extend(self.live.iter().filter(is_sampled).cloned());
        Some(sampled)
    }

    /// Returns the filters that have selected no thread of the session, except for filters that
    /// select another process or exclude threads.
    pub(crate) fn unmatched_filters(&self) -> Vec<String> {
        let names_other = self.filter.names_other_process(current_process_id());
        (self.session.settings.filters.iter().zip(&self.matched))
            .zip(names_other)
            .filter(|((filter, matched), names_other)| {
                !**matched && !names_other && !filter.starts_with('-')
            })
            .map(|((filter, _), _)| filter.clone())
            .collect()
    }

    /// Returns whether the session records a thread with this name and id.
    pub(crate) fn selects(&self, name: &str, tid: ThreadId) -> bool {
        self.filter.selects(name, tid, current_process_id())
    }

    /// Returns all recorded threads, unordered, including ended ones that may still have data in
    /// the buffer.
    pub(crate) fn all(&self) -> Vec<OffThreadRef> {
        let ended = self.ending.iter().chain(&self.empty).chain(&self.dead);
        self.live.iter().chain(ended).cloned().collect()
    }

    /// Marks ended threads as completely written, up to the first one that the sampler
    /// `still_writes`. Stores `buffer_end` as the end of their data.
    pub(crate) fn set_written(
        &mut self,
        buffer_end: u64,
        still_writes: impl Fn(&OffThreadRef) -> bool,
        lock: &PsLock,
    ) {
        // Without memory for them in the other lists, they are marked later.
        while self
            .ending
            .front()
            .is_some_and(|ended| !still_writes(ended))
            && self.dead.try_reserve(1).is_ok()
            && self.empty.try_reserve(1).is_ok()
        {
            let Some(ended) = self.ending.pop_front() else {
                break;
            };
            let thread = ended.unlocked_rw_for_locked_profiler();
            thread.update_profiled_thread_data(lock, |data| data.end_position = Some(buffer_end));
            if thread.has_entries_in(self.session.generation) {
                self.dead.push_back(ended);
            } else if thread.is_registered() {
                self.empty.push_back(ended);
            } else {
                // It ended before its first sample.
                self.drop_ended(ended, |counts| &counts.unsampled_threads, lock);
            }
        }
        self.drop_excess(lock);
    }

    /// Removes and returns ended threads whose data ended before `buffer_start`, or that ended too
    /// long before `now`. Keeps those whose end is not recorded yet, and those that it has no
    /// memory to return. The caller drops the threads without holding a lock.
    #[doc(alias = "DiscardExpiredDeadProfiledThreads")]
    #[must_use = "drop the threads without holding a lock"]
    pub(crate) fn take_expired(
        &mut self,
        buffer_start: u64,
        now: TimeStamp,
        lock: &PsLock,
    ) -> Vec<OffThreadRef> {
        let limits = self.limits;
        let is_expired = |ended: &OffThreadRef| {
            let thread = ended.unlocked_rw_for_locked_profiler();
            let data = thread.profiled_thread_data(lock);
            data.and_then(|data| data.end_position)
                .is_some_and(|end| end < buffer_start)
                || ended_at(ended).is_some_and(|ended_at| limits.is_too_old(ended_at, now))
        };
        let mut expired = Vec::new();
        for list in [&mut self.ending, &mut self.empty, &mut self.dead] {
            while list.front().is_some_and(is_expired) && expired.try_reserve(1).is_ok() {
                expired.extend(list.pop_front());
            }
        }
        for ended in &expired {
            self.ended_bytes -= ended_bytes(ended);
            ended
                .unlocked_rw_for_locked_profiler()
                .clear_profiling_features(lock);
        }
        expired
    }

    /// Drops the oldest ended threads while they exceed a limit, and counts them: first those
    /// without entries.
    fn drop_excess(&mut self, lock: &PsLock) {
        while (self.empty.len() > MAX_EMPTY_THREADS || self.is_too_large())
            && let Some(dropped) = self.empty.pop_front()
        {
            self.drop_ended(dropped, |counts| &counts.dropped_empty_threads, lock);
        }
        while self.is_too_large()
            && let Some(dropped) = self.dead.pop_front().or_else(|| self.ending.pop_front())
        {
            self.drop_with_entries(dropped, lock);
        }
    }

    fn is_too_large(&self) -> bool {
        self.ended_bytes > self.limits.max_bytes
    }

    fn drop_with_entries(&mut self, dropped: OffThreadRef, lock: &PsLock) {
        self.complete_since = self.complete_since.max(ended_at(&dropped));
        self.drop_ended(dropped, |counts| &counts.dropped_ended_threads, lock);
    }

    fn drop_ended(
        &mut self,
        dropped: OffThreadRef,
        count: fn(&SessionCounts) -> &AtomicU64,
        lock: &PsLock,
    ) {
        self.ended_bytes -= ended_bytes(&dropped);
        SessionCounts::add(count(&self.session.counts), 1);
        dropped
            .unlocked_rw_for_locked_profiler()
            .clear_profiling_features(lock);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::platform::current_thread_id;
    use crate::state::session::SessionSettings;
    use crate::threads::ThreadRegistrationInfo;

    fn session(capacity_bytes: u64, duration: Option<Duration>) -> Arc<Session> {
        let settings = SessionSettings {
            capacity_bytes,
            duration,
            ..SessionSettings::for_tests()
        };
        let now = TimeStamp::default();
        Arc::new(Session::new(settings, now, now, Vec::new()))
    }

    /// Adds threads that end one ns after another, and returns the session's threads.
    fn with_ended(
        session: &Arc<Session>,
        count: u64,
        has_entries: impl Fn(u64) -> bool,
        lock: &PsLock,
    ) -> ProfiledThreads {
        let mut threads = ProfiledThreads::new(Arc::clone(session), ThreadFilter::new(&[]));
        for serial in 1..=count {
            let thread = OffThreadRef::scripted(serial, "a thread", false, None);
            threads.add(&thread, lock);
            if has_entries(serial) {
                thread
                    .unlocked_const_reader_and_atomic_rw()
                    .note_entry(session.generation);
            }
            thread.set_found_ended(TimeStamp(serial));
            threads.end_thread(&thread, lock);
            threads.set_written(serial, |_| false, lock);
        }
        threads
    }

    fn serials(threads: &ProfiledThreads) -> Vec<u64> {
        let mut serials: Vec<_> = threads.all().iter().map(OffThreadRef::serial).collect();
        serials.sort_unstable();
        serials
    }

    #[test]
    fn ended_threads_expire_with_the_buffer_and_with_the_duration() {
        let lock = PsLock::acquire();
        let session = session(1 << 20, Some(Duration::from_nanos(10)));
        let mut threads = with_ended(&session, 10, |serial| serial % 2 == 0, &lock);
        assert_eq!(threads.take_expired(0, TimeStamp(11), &lock).len(), 0);
        assert_eq!(threads.take_expired(4, TimeStamp(11), &lock).len(), 3);
        assert_eq!(serials(&threads), [4, 5, 6, 7, 8, 9, 10]);
        let expired = threads.take_expired(4, TimeStamp(18), &lock);
        assert!(expired.iter().all(|thread| {
            let thread = thread.unlocked_rw_for_locked_profiler();
            thread.profiled_thread_data(&lock).is_none()
        }));
        assert_eq!(serials(&threads), [8, 9, 10]);
        assert_eq!(threads.take_expired(100, TimeStamp(18), &lock).len(), 3);
        assert_eq!(threads.ended_bytes, 0);
        assert_eq!(threads.complete_since, None, "no entry is missing");
    }

    /// Returns a thread that the sampler has found. All have the id of the calling thread.
    fn found(serial: u64) -> OffThreadRef {
        let info = ThreadRegistrationInfo {
            serial,
            is_main: false,
            registered_at: TimeStamp::default(),
        };
        let id = (current_thread_id(), TimeStamp::default());
        OffThreadRef::of_found_thread(info, "found", id)
    }

    #[test]
    fn found_thread_without_a_sample_is_counted_and_not_kept() {
        let lock = PsLock::acquire();
        let session = session(1 << 20, None);
        let mut threads = ProfiledThreads::new(Arc::clone(&session), ThreadFilter::new(&[]));
        for serial in 1..=3 {
            let thread = found(serial);
            assert!(threads.add(&thread, &lock));
            if serial == 2 {
                let unlocked = thread.unlocked_const_reader_and_atomic_rw();
                unlocked.note_entry(session.generation);
            }
            thread.set_found_ended(TimeStamp(serial));
            threads.end_thread(&thread, &lock);
            threads.set_written(serial, |_| false, &lock);
        }
        assert_eq!(serials(&threads), [2]);
        let count = &session.counts.unsampled_threads;
        assert_eq!(count.load(std::sync::atomic::Ordering::Relaxed), 2);
    }

    #[test]
    fn found_thread_is_found_by_its_id_until_it_registers_or_ends() {
        let lock = PsLock::acquire();
        let session = session(1 << 20, None);
        let mut threads = ProfiledThreads::new(session, ThreadFilter::new(&[]));
        let serial = |threads: &ProfiledThreads| {
            let found = threads.find_unregistered(current_thread_id());
            found.as_ref().map(OffThreadRef::serial)
        };
        let one = found(1);
        threads.add(&one, &lock);
        assert_eq!(serial(&threads), Some(1));
        // A thread that registers, with the same id, is another one.
        let registered = OffThreadRef::scripted(2, "registered", false, None);
        threads.add(&registered, &lock);
        assert_eq!(serial(&threads), Some(1));
        one.set_found_ended(TimeStamp(1));
        threads.end_thread(&one, &lock);
        assert_eq!(serial(&threads), None);
    }

    #[test]
    fn threads_without_entries_are_dropped_before_those_with_entries() {
        let lock = PsLock::acquire();
        let bytes = ended_bytes(&OffThreadRef::scripted(1, "a thread", false, None));
        // The share is an eighth.
        let session = session(8 * 10 * bytes, None);
        let mut threads = with_ended(&session, 20, |serial| serial <= 8, &lock);
        assert_eq!(serials(&threads), [1, 2, 3, 4, 5, 6, 7, 8, 19, 20]);
        assert_eq!(threads.ended_bytes, 10 * bytes);
        let counts = || {
            let counts = &session.counts;
            [&counts.dropped_empty_threads, &counts.dropped_ended_threads]
                .map(|count| count.load(std::sync::atomic::Ordering::Relaxed))
        };
        assert_eq!((counts(), threads.complete_since), ([10, 0], None));
        // The sampler still writes these: it is not known whether they have entries.
        for serial in 21..=26 {
            let thread = OffThreadRef::scripted(serial, "a thread", false, None);
            threads.add(&thread, &lock);
            thread.set_found_ended(TimeStamp(serial));
            threads.end_thread(&thread, &lock);
        }
        assert_eq!(serials(&threads), [5, 6, 7, 8, 21, 22, 23, 24, 25, 26]);
        assert_eq!(counts(), [12, 4]);
        assert_eq!(threads.complete_since, Some(TimeStamp(4)));
    }
}
