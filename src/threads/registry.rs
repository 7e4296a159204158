//! The registry of all registered threads.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::capture::{Pool, hold_pool_for_fork};
use crate::threads::cached_thread_info::clear_cached_thread_info;
use crate::threads::off_thread_ref::OffThreadRef;
use crate::types::{ThreadId, TimeStamp};
use crate::util::{ExclusiveGuard, Guard, LockRank, NamedRwLock, PsLock};

/// The only registry. Adding or removing a thread takes constant time.
#[derive(Debug)]
pub(crate) struct ThreadRegistry {
    /// Unordered; each registration stores its index.
    live: Vec<OffThreadRef>,
}

static REGISTRY: NamedRwLock<ThreadRegistry> = NamedRwLock::new(
    "thread registry",
    LockRank::ThreadRegistry,
    ThreadRegistry { live: Vec::new() },
);

impl ThreadRegistry {
    pub(crate) fn next_serial() -> u64 {
        static LAST_SERIAL: AtomicU64 = AtomicU64::new(0);
        LAST_SERIAL.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns how much memory the lists of threads may take when a thread is added: this one, and that
    /// of a session. Each doubles while its old memory is still in use.
    pub(crate) fn growth_bytes() -> usize {
        const LISTS: usize = 2;
        REGISTRY.lock_shared().live.capacity() * 2 * LISTS * size_of::<OffThreadRef>()
    }

    /// Sets the index of a registration in the list. The caller holds the registry's lock.
    fn set_index(registration: &OffThreadRef, index: usize) {
        debug_assert!(REGISTRY.is_locked_exclusive_on_current_thread());
        registration.data().set_registry_index(index);
    }

    pub(crate) fn add(registration: &OffThreadRef) {
        let mut registry = REGISTRY.lock_exclusive();
        Self::set_index(registration, registry.live.len());
        registry.live.push(registration.clone());
    }

    /// Removes a thread that has exited or is exiting. Returns false if the registry no longer
    /// contains it.
    pub(crate) fn remove(registration: &OffThreadRef, now: TimeStamp) -> bool {
        let mut registry = REGISTRY.lock_exclusive();
        let index = registration.data().registry_index();
        if !registry
            .live
            .get(index)
            .is_some_and(|live| live.is(registration))
        {
            return false;
        }
        registry.live.swap_remove(index);
        if let Some(moved) = registry.live.get(index) {
            Self::set_index(moved, index);
        }
        registration.data().set_unregistered(now);
        true
    }

    /// Returns the registered thread with this id.
    pub(crate) fn find(thread: ThreadId) -> Option<OffThreadRef> {
        let is_it =
            |live: &&OffThreadRef| live.unlocked_const_reader_and_atomic_rw().tid() == thread;
        REGISTRY.lock_shared().live.iter().find(is_it).cloned()
    }

    /// Replaces the contents of `ids` by the ids of all registered threads, sorted. Returns false if
    /// there is not enough memory for them.
    pub(crate) fn list_ids(ids: &mut Vec<ThreadId>) -> bool {
        let registry = REGISTRY.lock_shared();
        ids.clear();
        if ids.try_reserve(registry.live.len()).is_err() {
            return false;
        }
        let id_of = |live: &OffThreadRef| live.unlocked_const_reader_and_atomic_rw().tid();
        ids.extend(registry.live.iter().map(id_of));
        ids.sort_unstable();
        true
    }

    /// Calls `visit` with each registered thread. The `PsLock` prevents registrations and
    /// unregistrations during the call.
    #[doc(alias = "LockedRegistry")]
    pub(crate) fn for_each(_lock: &PsLock, visit: impl FnMut(&OffThreadRef)) {
        REGISTRY.lock_shared().live.iter().for_each(visit);
    }

    /// Locks the registry and the slot pool while the process forks.
    pub(crate) fn hold_for_fork() -> RegistryForkGuard {
        let registry = REGISTRY.lock_exclusive();
        RegistryForkGuard {
            pool: hold_pool_for_fork(),
            registry,
        }
    }

    /// Keeps only `current`, the calling thread if it is registered, in the child of a fork, where
    /// no other thread exists.
    pub(crate) fn keep_only(current: Option<OffThreadRef>, mut guard: RegistryForkGuard) {
        clear_cached_thread_info();
        let registry = &mut *guard.registry;
        let (kept, gone): (Vec<_>, Vec<_>) = registry
            .live
            .drain(..)
            .partition(|live| current.as_ref().is_some_and(|current| live.is(current)));
        registry.live = kept;
        registry
            .live
            .iter()
            .for_each(|live| Self::set_index(live, 0));
        // Leaked, because the slots of the other threads may be half written.
        std::mem::forget(gone);
    }
}

/// The locks of the registry and of the slot pool, held during a fork.
#[derive(Debug)]
pub(crate) struct RegistryForkGuard {
    // The fields are dropped in this order, the reverse of the order of locking.
    #[expect(dead_code, reason = "held for its drop")]
    pool: Guard<'static, Pool>,
    registry: ExclusiveGuard<'static, ThreadRegistry>,
}
