//! State of a running session.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::platform::monotonic_now;
use crate::state::child_profile::ChildProfile;
use crate::state::core_ps::{CORE_PS, core_buffer};
use crate::state::crash_facts::KeepsFact;
use crate::state::expiring_list::{ExpiringList, KeptKind};
use crate::state::facts::Fact;
use crate::state::profiled_threads::ProfiledThreads;
use crate::state::session::Session;
use crate::state::session_counts::SessionCounts;
use crate::threads::{OffThreadRef, RegistrationHooks, ThreadRegistry};
use crate::types::{Generation, Page, ThreadFilter, ThreadId, TimeStamp};
use crate::unwind::{registered_code, unregistered_code_bytes};
use crate::util::{PsCell, PsLock};

/// The sampler of a running session, as seen by this layer.
pub(crate) trait RunningSampler: Send {
    /// Waits until the sampler thread has ended, which takes one sleep step once the session is
    /// stopping. The caller must not hold the `PsLock`.
    fn join(self: Box<Self>);
}

/// A running session and its sampler.
#[doc(alias = "ActivePS")]
pub(crate) struct ActivePs {
    /// The data that the sampler and snapshots share: settings, times, counts.
    pub(crate) session: Arc<Session>,
    pub(crate) threads: RefCell<ProfiledThreads>,
    /// Unregistered pages that the buffer may still refer to.
    pub(crate) ended_pages: RefCell<ExpiringList<Arc<Page>>>,
    /// Profiles of child processes that have exited.
    pub(crate) exit_profiles: RefCell<ExpiringList<ChildProfile>>,
    pub(crate) sampler: Box<dyn RunningSampler>,
}

/// Data that a session no longer keeps. The caller drops them without holding a lock, because they
/// may be large.
#[derive(Debug, Default)]
pub(crate) struct Expired {
    #[expect(dead_code, reason = "held for its drop")]
    threads: Vec<OffThreadRef>,
    pages: Vec<Arc<Page>>,
    exit_profiles: Vec<ChildProfile>,
}

/// `None` while the profiler is not running.
pub(crate) static ACTIVE_PS: PsCell<Option<ActivePs>> = PsCell::new(None);

impl ActivePs {
    /// Creates the state of a session that has not recorded anything yet.
    pub(crate) fn new(
        session: Arc<Session>,
        filter: ThreadFilter,
        sampler: Box<dyn RunningSampler>,
    ) -> Self {
        let limits = |kind| session.settings.kept_limits(kind);
        Self {
            ended_pages: RefCell::new(ExpiringList::new(limits(KeptKind::EndedPages))),
            exit_profiles: RefCell::new(ExpiringList::new(limits(KeptKind::ExitProfiles))),
            threads: RefCell::new(ProfiledThreads::new(Arc::clone(&session), filter)),
            session,
            sampler,
        }
    }

    /// Makes this session the running one. Adds all registered threads that it records.
    pub(crate) fn begin(self, lock: &mut PsLock) {
        *ACTIVE_PS.get_mut(lock) = Some(self);
        with_running_threads(lock, |threads| threads.begin(lock));
    }

    /// Ends the recording of all threads of the running session, and returns that session.
    pub(crate) fn end(lock: &mut PsLock) -> Option<Self> {
        let ended = ACTIVE_PS.get_mut(lock).take();
        ended.inspect(|active| active.threads.borrow_mut().end(lock))
    }

    /// Calls `body` with the state of `session`. Returns `None` if the session has ended, even
    /// if another one runs.
    pub(crate) fn with<T>(session: &Session, body: impl FnOnce(&Self, &PsLock) -> T) -> Option<T> {
        let lock = PsLock::acquire();
        let active = ACTIVE_PS.get(&lock).as_ref()?;
        (active.generation() == session.generation).then(|| body(active, &lock))
    }

    /// Calls `update` with the sampled threads if they have changed since the last call, which left
    /// its count in `seen_changes`. The list is sorted by serial numbers, and empty if the session
    /// has ended.
    ///
    /// `update` must write the data that the sampler still holds of threads that are not in the
    /// list, and returns false if it has no memory for the others. Afterwards, the ended threads
    /// among them are marked as completely written, and expired threads are dropped. Called by the
    /// sampler, without a lock. Without memory for the list, the next call tries again.
    pub(crate) fn follow_threads(
        session: &Session,
        seen_changes: &mut u64,
        update: impl FnOnce(&[OffThreadRef]) -> bool,
        buffer_range: impl FnOnce() -> Range<u64>,
    ) {
        let changes = session.thread_changes.read();
        if changes == *seen_changes {
            return;
        }
        let sampled = Self::with(session, |active, _| active.threads.borrow().sampled());
        let Some(mut sampled) = sampled.unwrap_or_else(|| Some(Vec::new())) else {
            return;
        };
        sampled.sort_unstable_by_key(OffThreadRef::serial);
        if !update(&sampled) {
            return;
        }
        *seen_changes = changes;
        // A thread that has ended since the list was taken is still in the sampler's list.
        let is_sampled = |serial| {
            sampled
                .binary_search_by_key(&serial, OffThreadRef::serial)
                .is_ok()
        };
        let still_writes = |dead: &OffThreadRef| is_sampled(dead.serial());
        let now = monotonic_now();
        let expired = Self::with(session, |active, lock| {
            // Read under the lock, so that the range includes the last entry of a thread that has
            // just ended.
            let range = buffer_range();
            let mut threads = active.threads.borrow_mut();
            threads.set_written(range.end, still_writes, lock);
            let expired = threads.take_expired(range.start, now, lock);
            drop(threads);
            active.report_kept_bytes();
            expired
        });
        drop(expired);
    }

    /// Removes and returns the items that the session no longer keeps at `now`: their data has left
    /// the buffer, or they are too old.
    #[must_use = "drop the data without holding a lock"]
    pub(crate) fn take_expired(&self, now: TimeStamp, lock: &PsLock) -> Expired {
        let buffer_start = core_buffer().range().start;
        let expired = Expired {
            threads: self
                .threads
                .borrow_mut()
                .take_expired(buffer_start, now, lock),
            pages: self
                .ended_pages
                .borrow_mut()
                .take_expired(buffer_start, now),
            exit_profiles: self
                .exit_profiles
                .borrow_mut()
                .take_expired(buffer_start, now),
        };
        self.report_kept_bytes();
        expired
    }

    /// Keeps a page that was just unregistered. Returns the items that the session drops for it.
    #[must_use = "drop the data without holding a lock"]
    pub(crate) fn keep_ended_page(&self, page: Arc<Page>, lock: &PsLock) -> Expired {
        let now = monotonic_now();
        let mut expired = self.take_expired(now, lock);
        let bytes = (size_of::<Page>() + page.url.capacity()) as u64;
        let dropped = &self.session.counts.dropped_ended_pages;
        let lost = self.keep(&self.ended_pages, (page, bytes), now, dropped);
        expired.pages.extend(lost);
        expired
    }

    /// Returns the maximum size of all profiles of child processes, in bytes.
    pub(crate) fn max_exit_profile_bytes(&self) -> u64 {
        self.exit_profiles.borrow().limits.max_bytes
    }

    /// Keeps the profile of a child process that was just received. Returns the items that the
    /// session drops for it.
    #[must_use = "drop the data without holding a lock"]
    pub(crate) fn keep_exit_profile(&self, profile: ChildProfile, lock: &PsLock) -> Expired {
        let now = monotonic_now();
        let mut expired = self.take_expired(now, lock);
        let bytes = profile.bytes();
        let dropped = &self.session.counts.dropped_exit_profiles;
        let lost = self.keep(&self.exit_profiles, (profile, bytes), now, dropped);
        expired.exit_profiles.extend(lost);
        expired
    }

    fn keep<T>(
        &self,
        list: &RefCell<ExpiringList<T>>,
        (data, bytes): (T, u64),
        now: TimeStamp,
        dropped: &AtomicU64,
    ) -> Vec<T> {
        let buffer_end = core_buffer().range().end;
        let lost = list.borrow_mut().keep(data, bytes, buffer_end, now);
        SessionCounts::add(dropped, lost.len() as u64);
        self.report_kept_bytes();
        lost
    }

    /// Tells the buffer how much the session keeps outside the chunks.
    pub(crate) fn report_kept_bytes(&self) {
        let bytes = self.threads.borrow().ended_bytes
            + self.ended_pages.borrow().bytes()
            + self.exit_profiles.borrow().bytes()
            + unregistered_code_bytes()
            + self.session.perf_map_bytes();
        core_buffer().set_kept_bytes(bytes);
    }

    /// Ends a thread that the sampler had found, unless it has registered.
    pub(crate) fn end_unregistered(&self, thread: &OffThreadRef, now: TimeStamp, lock: &PsLock) {
        let unlocked = thread.unlocked_const_reader_and_atomic_rw();
        if !unlocked.is_registered() && unlocked.unregistered_at().is_none() {
            thread.set_found_ended(now);
            self.threads.borrow_mut().end_thread(thread, lock);
        }
    }

    pub(crate) fn generation(&self) -> Generation {
        self.session.generation
    }

    pub(crate) fn session(&self) -> Arc<Session> {
        Arc::clone(&self.session)
    }
}

/// Notifies the running session of threads that register and unregister.
pub(crate) const REGISTRATION_HOOKS: RegistrationHooks = RegistrationHooks {
    found: |tid, lock| {
        let active = ACTIVE_PS.get(lock).as_ref()?;
        active.threads.borrow().find_unregistered(tid)
    },
    registered: |thread, lock| {
        let Some(active) = ACTIVE_PS.get(lock) else {
            return;
        };
        let tid = thread.unlocked_const_reader_and_atomic_rw().tid();
        // A thread that has ended unnoticed had the same id.
        let earlier = active.threads.borrow().find_unregistered(tid);
        if let Some(earlier) = earlier.filter(|earlier| !earlier.is(thread)) {
            active.end_unregistered(&earlier, monotonic_now(), lock);
        }
        active.threads.borrow_mut().add(thread, lock);
        active.report_kept_bytes();
    },
    unregistered: |thread, lock| {
        with_running_threads(lock, |threads| threads.end_thread(thread, lock));
    },
};

/// Returns the thread with this id, if it has registered or the sampler has found it.
pub(crate) fn find_thread(thread: ThreadId) -> Option<OffThreadRef> {
    ThreadRegistry::find(thread).or_else(|| {
        let lock = PsLock::acquire();
        (REGISTRATION_HOOKS.found)(thread, &lock)
    })
}

/// Calls `body` with the threads of the running session. Without a session, does nothing.
fn with_running_threads(lock: &PsLock, body: impl FnOnce(&mut ProfiledThreads)) {
    if let Some(active) = ACTIVE_PS.get(lock) {
        body(&mut active.threads.borrow_mut());
        active.report_kept_bytes();
    }
}

/// Returns a function that decides whether a fact still matters: facts of threads, pages and code that
/// the session no longer keeps do not. Called by the sampler, without a lock.
pub(crate) fn lasting_facts(session: &Session) -> KeepsFact {
    let known = ActivePs::with(session, |active, lock| {
        let threads = active.threads.borrow().all();
        let serials: HashSet<u64> = threads.iter().map(OffThreadRef::serial).collect();
        let core = CORE_PS.get(lock);
        let pages = core.iter().flat_map(|core| &core.pages);
        let ended = active.ended_pages.borrow();
        let pages = pages
            .chain(ended.since(0, TimeStamp(0)))
            .map(|page| page.inner_window_id);
        (serials, pages.collect::<HashSet<u64>>())
    });
    let Some((serials, pages)) = known else {
        return Box::new(|_| true);
    };
    let code = registered_code();
    Box::new(move |fact| match fact {
        Fact::Thread(thread) => serials.contains(&thread.serial),
        Fact::Page(page) => pages.contains(&page.inner_window_id),
        Fact::Code(fact) => code
            .find(fact.start)
            .is_some_and(|known| *known.name == *fact.name),
        _ => true,
    })
}
