//! All registered threads, and those that ended while a session may still hold their data.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::{Guard, LockRank, NamedMutex, ThreadFilter, ThreadId, TimeStamp};
use crate::platform::current_process_id;
use crate::threads::own_thread::forget_own_thread;
use crate::threads::registration::{CurrentThread, ThreadRegistration};
use crate::threads::slot_pool::{Pool, hold_pool};

/// The one registry.
#[derive(Debug)]
pub(crate) struct ThreadRegistry {
    live: Vec<Arc<ThreadRegistration>>,
    /// Ended during the session; dropped when the buffer holds nothing of them any more.
    dead: Vec<Arc<ThreadRegistration>>,
    /// The session's filter; `None` while there is no session.
    filter: Option<ThreadFilter>,
    last_serial: u64,
}

static REGISTRY: NamedMutex<ThreadRegistry> = NamedMutex::new(
    "thread registry",
    LockRank::ThreadRegistry,
    ThreadRegistry { live: Vec::new(), dead: Vec::new(), filter: None, last_serial: 0 },
);
/// Raised with every change of the list of live threads, so that the sampler looks at the list only then.
static VERSION: AtomicU64 = AtomicU64::new(1);

impl ThreadRegistry {
    /// Adds the calling thread. What `make` asks of the system is asked before the lock is taken.
    pub(super) fn add(make: impl FnOnce(u64) -> ThreadRegistration) -> Arc<ThreadRegistration> {
        let serial = {
            let mut registry = REGISTRY.lock();
            registry.last_serial += 1;
            registry.last_serial
        };
        let registration = Arc::new(make(serial));
        let mut registry = REGISTRY.lock();
        registration.set_profiled(registry.selects(&registration));
        registry.live.push(Arc::clone(&registration));
        VERSION.fetch_add(1, Ordering::Release);
        registration
    }

    /// Takes a thread that has ended off the list.
    pub(crate) fn remove(registration: &Arc<ThreadRegistration>, now: TimeStamp) {
        let mut registry = REGISTRY.lock();
        if let Some(index) = registry.live.iter().position(|live| Arc::ptr_eq(live, registration)) {
            let removed = registry.live.swap_remove(index);
            removed.set_unregistered(now);
            if registry.filter.is_some() && removed.is_profiled() {
                registry.dead.push(removed);
            }
            VERSION.fetch_add(1, Ordering::Release);
        }
    }

    fn selects(&self, registration: &ThreadRegistration) -> bool {
        self.filter.as_ref().is_some_and(|filter| filter.selects(&registration.name, current_process_id()))
    }

    /// A session begins with this filter, or ends.
    pub(crate) fn set_session_filter(filter: Option<ThreadFilter>) {
        let mut registry = REGISTRY.lock();
        registry.filter = filter;
        registry.dead.clear();
        for registration in &registry.live {
            registration.set_profiled(registry.selects(registration));
        }
        VERSION.fetch_add(1, Ordering::Release);
    }

    /// The registered thread with this id.
    pub(crate) fn find(thread: ThreadId) -> Option<Arc<ThreadRegistration>> {
        REGISTRY.lock().live.iter().find(|registration| registration.tid() == thread).cloned()
    }

    pub(crate) fn version() -> u64 {
        VERSION.load(Ordering::Acquire)
    }

    /// The threads that the session selects and that live.
    pub(crate) fn profiled_threads() -> Vec<Arc<ThreadRegistration>> {
        REGISTRY.lock().live.iter().filter(|registration| registration.is_profiled()).cloned().collect()
    }

    /// The threads that the session selects, dead ones that it may hold data of included, in order of registration.
    ///
    /// Dead threads of which nothing can lie at or after `range_start` are forgotten; not those that ended before anything
    /// was recorded.
    pub(crate) fn threads_of_session(range_start: u64) -> Vec<Arc<ThreadRegistration>> {
        let mut registry = REGISTRY.lock();
        registry.dead.retain(|dead| dead.end_position().is_none_or(|end| end >= range_start));
        let live = registry.live.iter().filter(|registration| registration.is_profiled());
        let mut threads: Vec<_> = live.chain(&registry.dead).cloned().collect();
        threads.sort_by_key(|thread| thread.serial);
        threads
    }

    /// Notes the end of the buffer for threads that died since the last call.
    pub(crate) fn stamp_dead_threads(range_end: u64, range_start: u64) {
        let mut registry = REGISTRY.lock();
        for dead in registry.dead.iter().filter(|dead| dead.end_position().is_none()) {
            dead.set_end_position(range_end);
        }
        registry.dead.retain(|dead| dead.end_position().is_none_or(|end| end >= range_start));
    }

    /// Holds the registry still while the process forks.
    pub(crate) fn hold_for_fork() -> RegistryForkGuard {
        let registry = REGISTRY.lock();
        RegistryForkGuard { pool: hold_pool(), registry }
    }

    /// In the child of a fork: of all threads only the calling one is left, and there is no session.
    pub(crate) fn keep_only_current_thread(mut guard: RegistryForkGuard) {
        let serial = CurrentThread::with(|registration| {
            registration.adopt_after_fork();
            registration.serial
        });
        forget_own_thread();
        let registry = &mut *guard.registry;
        // The others' slots may be half written; their memory is left alone.
        let (kept, gone) = registry.live.drain(..).partition(|live| Some(live.serial) == serial);
        registry.live = kept;
        let gone: Vec<Arc<ThreadRegistration>> = gone;
        std::mem::forget(gone);
        std::mem::forget(std::mem::take(&mut registry.dead));
        registry.filter = None;
        registry.live.iter().for_each(|live| live.set_profiled(false));
        VERSION.fetch_add(1, Ordering::Release);
    }
}

/// Both of the threads' locks, held.
#[derive(Debug)]
pub(crate) struct RegistryForkGuard {
    // Dropped in the reverse of the order in which they were taken.
    #[expect(dead_code, reason = "held for its drop")]
    pool: Guard<'static, Pool>,
    registry: Guard<'static, ThreadRegistry>,
}
