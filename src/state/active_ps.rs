//! State of a running session.

use std::cell::RefCell;
use std::sync::Arc;

use crate::state::expiring_list::ExpiringList;
use crate::state::profiled_threads::ProfiledThreads;
use crate::state::session::Session;
use crate::threads::RegistrationHooks;
use crate::types::{Generation, Page, ThreadFilter};
use crate::util::{PsCell, PsLock};

/// The sampler of a running session, as seen by this layer.
pub(crate) trait RunningSampler: Send {
    /// Waits until the sampler thread no longer accesses the session: it has ended, or it is in a
    /// callback. Once the session is stopping, the sampler thread ends within one sleep step. The
    /// caller must not hold the `PsLock`.
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

    pub(crate) fn generation(&self) -> Generation {
        self.session.generation
    }

    pub(crate) fn session(&self) -> Arc<Session> {
        Arc::clone(&self.session)
    }
}

/// Notifies the running session of threads that register and unregister.
pub(crate) const REGISTRATION_HOOKS: RegistrationHooks = RegistrationHooks {
    registered: |thread, lock| with_session_threads(lock, |threads| threads.add(thread, lock)),
    unregistered: |thread, lock| {
        with_session_threads(lock, |threads| threads.end_thread(thread, lock))
    },
};

fn with_session_threads(lock: &PsLock, body: impl FnOnce(&mut ProfiledThreads)) {
    if let Some(active) = ACTIVE_PS.get(lock) {
        body(&mut active.threads.borrow_mut());
    }
}
