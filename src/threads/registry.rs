//! The registry of all registered threads, and what each thread knows of itself.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::capture::{Pool, hold_pool_for_fork};
use crate::platform::{StackBounds, current_stack_bounds, current_thread_id};
use crate::threads::registration_data::OffThreadRef;
#[cfg(any(test, fuzzing))]
use crate::threads::registration_data::ThreadRegistrationInfo;
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
        let registry = REGISTRY.lock_shared();
        registry
            .live
            .iter()
            .find(|live| live.tid() == thread)
            .cloned()
    }

    /// Replaces the contents of `ids` by the ids of all registered threads, sorted. Returns false if
    /// there is not enough memory for them.
    pub(crate) fn list_ids(ids: &mut Vec<ThreadId>) -> bool {
        let registry = REGISTRY.lock_shared();
        ids.clear();
        if ids.try_reserve(registry.live.len()).is_err() {
            return false;
        }
        ids.extend(registry.live.iter().map(OffThreadRef::tid));
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
        // Here, the calling thread has another id.
        CACHED_INFO.set(None);
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

/// A thread's id, and the bounds of its stack if the system reports them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedThreadInfo {
    pub(crate) tid: ThreadId,
    pub(crate) bounds: Option<StackBounds>,
}

thread_local! {
    // Initialized at compile time and without a destructor, so that it exists as long as the
    // thread.
    static CACHED_INFO: Cell<Option<CachedThreadInfo>> = const { Cell::new(None) };
}

impl CachedThreadInfo {
    /// Returns the values of the calling thread. The first call on a thread queries the system,
    /// which takes some microseconds and allocates.
    pub(crate) fn current() -> Self {
        CACHED_INFO.get().unwrap_or_else(|| {
            let own = Self {
                tid: current_thread_id(),
                bounds: current_stack_bounds(),
            };
            CACHED_INFO.set(Some(own));
            own
        })
    }
}

#[cfg(any(test, fuzzing))]
impl OffThreadRef {
    /// Creates a registration with this serial number that no thread made for itself. If `ended_at`
    /// is given, the registration has ended at that time.
    pub(crate) fn scripted(
        serial: u64,
        name: &str,
        is_main: bool,
        ended_at: Option<TimeStamp>,
    ) -> Self {
        let info = ThreadRegistrationInfo {
            serial,
            is_main,
            registered_at: TimeStamp::default(),
        };
        let registration = Self::of_past_process(info, name.to_owned(), current_thread_id(), None);
        if let Some(ended_at) = ended_at {
            let _lock = PsLock::acquire();
            ThreadRegistry::add(&registration);
            ThreadRegistry::remove(&registration, ended_at);
        }
        registration
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_is_per_thread_and_queried_again_after_clear() {
        let own = CachedThreadInfo::current();
        assert_eq!(
            (own.tid, own.bounds),
            (current_thread_id(), current_stack_bounds())
        );
        let other = std::thread::spawn(CachedThreadInfo::current)
            .join()
            .expect("thread");
        assert_ne!((other.tid, other.bounds), (own.tid, own.bounds));
        CACHED_INFO.set(Some(other));
        CACHED_INFO.set(None);
        assert_eq!(CachedThreadInfo::current().tid, own.tid);
    }
}
