//! What is known while the profiler runs.

use std::cell::RefCell;
use std::sync::Arc;

use crate::base::{Generation, Page, PsCell, PsLock, ThreadFilter};
use crate::state::profiled_threads::ProfiledThreads;
use crate::state::session::Session;
use crate::state::while_buffered::WhileBuffered;
use crate::threads::RegistrationHooks;

/// The sampler, as far as the state needs to know it.
pub(crate) trait RunningSampler: Send {
    /// Waits until the sampler thread touches nothing of the session's any more: it has ended, which it does within one
    /// step of its sleep once the session says stop, or it is in a callback. Not under the `PsLock`.
    fn join(self: Box<Self>);
}

/// A running session and its sampler.
#[doc(alias = "ActivePS")]
pub(crate) struct ActivePs {
    /// Settings, times, counts: what the sampler and snapshots share.
    pub(crate) session: Arc<Session>,
    pub(crate) threads: RefCell<ProfiledThreads>,
    /// Pages that are gone, and that the buffer may speak of.
    pub(crate) ended_pages: RefCell<WhileBuffered<Arc<Page>>>,
    /// Profiles of children that have ended.
    pub(crate) exit_profiles: RefCell<WhileBuffered<Arc<str>>>,
    pub(crate) sampler: Box<dyn RunningSampler>,
}

/// `None` while the profiler is not running.
pub(crate) static ACTIVE_PS: PsCell<Option<ActivePs>> = PsCell::new(None);

impl ActivePs {
    /// Nothing has happened yet.
    pub(crate) fn new(
        session: Arc<Session>,
        filter: ThreadFilter,
        sampler: Box<dyn RunningSampler>,
    ) -> Self {
        Self {
            threads: RefCell::new(ProfiledThreads::new(Arc::clone(&session), filter)),
            session,
            ended_pages: RefCell::new(WhileBuffered::new()),
            exit_profiles: RefCell::new(WhileBuffered::new()),
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

/// How a session hears of threads that come and go.
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
