//! State of a running session.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use crate::state::expiring_list::ExpiringList;
use crate::state::profiled_threads::ProfiledThreads;
use crate::state::session::Session;
use crate::threads::{OffThreadRef, RegistrationHooks};
use crate::types::{Generation, Page, ThreadFilter};
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
    pub(crate) exit_profiles: RefCell<ExpiringList<Arc<str>>>,
    pub(crate) sampler: Box<dyn RunningSampler>,
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
        Self {
            threads: RefCell::new(ProfiledThreads::new(Arc::clone(&session), filter)),
            session,
            ended_pages: RefCell::new(ExpiringList::new()),
            exit_profiles: RefCell::new(ExpiringList::new()),
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
    /// its count in `seen_changes`. The list is empty if the session has ended.
    ///
    /// `update` must write what the sampler still holds of threads that are not in the list.
    /// Afterwards those of them that have ended are marked as completely written, and expired ones
    /// are dropped. Called by the sampler, without a lock.
    pub(crate) fn follow_threads(
        session: &Session,
        seen_changes: &mut u64,
        update: impl FnOnce(&[OffThreadRef]),
        buffer_range: impl FnOnce() -> Range<u64>,
    ) {
        let changes = session.thread_changes.read();
        if changes == *seen_changes {
            return;
        }
        *seen_changes = changes;
        let sampled = Self::with(session, |active, _| active.threads.borrow().sampled());
        let sampled = sampled.unwrap_or_default();
        update(&sampled);
        // A thread that has ended since the list was taken is still in the sampler's list.
        let serials: HashSet<u64> = sampled.iter().map(OffThreadRef::serial).collect();
        let still_writes = |dead: &OffThreadRef| serials.contains(&dead.serial());
        Self::with(session, |active, lock| {
            // Read under the lock, so that the range includes the last entry of a thread that has
            // just ended.
            let range = buffer_range();
            let mut threads = active.threads.borrow_mut();
            threads.set_written(range.end, still_writes, lock);
            threads.drop_expired(range.start, lock);
        });
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
    registered: |thread, lock| with_running_threads(lock, |threads| threads.add(thread, lock)),
    unregistered: |thread, lock| {
        with_running_threads(lock, |threads| threads.end_thread(thread, lock))
    },
};

/// Calls `body` with the threads of the running session, if there is one.
fn with_running_threads(lock: &PsLock, body: impl FnOnce(&mut ProfiledThreads)) {
    if let Some(active) = ACTIVE_PS.get(lock) {
        body(&mut active.threads.borrow_mut());
    }
}
