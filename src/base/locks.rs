//! Locks with a name, an owner and a place in the lock order.
//!
//! The order is life cycle → `PsLock` → `ThreadRegistry` → thread data → chunk manager → unwinder → loader → code ranges →
//! script functions → event watches. Debug builds assert that a thread takes them in that order and none twice. A lock is
//! never poisoned: what a panic left behind is still well formed, as every critical section here is. None of them is taken
//! in the signal handler.
//!
//! | kind | for | Gecko's |
//! |---|---|---|
//! | [`NamedMutex`] | one thread at a time | `BaseProfilerMutex` |
//! | [`NamedRwLock`] | many that read, or one that changes | `BaseProfilerSharedMutex` |
//! | [`NamedMutex::get_mut`] | who has it for himself, and so locks nothing | none |
//!
//! The last takes the place of `BaseProfilerMaybeMutex`, which decides at run time whether it locks.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering, compiler_fence};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The places in the lock order; a thread may only take a lock of a greater rank than those it holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum LockRank {
    Lifecycle = 0,
    Ps = 1,
    ThreadRegistry = 2,
    ThreadData = 3,
    ChunkManager = 4,
    Unwinder = 5,
    Loader = 6,
    CodeRanges = 7,
    ScriptFunctions = 8,
    EventWatches = 9,
}

thread_local! {
    /// The ranks of the locks that the thread holds. Its address tells threads apart. It has no destructor, and so it is
    /// there as long as the thread, for the destructors of other thread-locals too.
    static HELD_RANKS: Cell<u16> = const { Cell::new(0) };
}

/// Whether the calling thread holds any of the profiler's locks, as it does when the profiler's own work calls the host: its
/// allocator, say. What it asks for then must not take a lock.
#[doc(alias = "profiler_is_locked_on_current_thread")]
pub(crate) fn is_any_lock_held_on_current_thread() -> bool {
    HELD_RANKS.get() != 0
}

/// Beside the ranks: the thread is in work of ours that calls the host's allocator, under no lock.
const OWN_WORK: u16 = 1 << 15;

/// Calls `body` as work of ours in which the host's allocator may be called: what that asks for meanwhile is refused as it is under a
/// lock, so that nothing of the sort begins within itself.
pub(crate) fn as_own_work<T>(body: impl FnOnce() -> T) -> T {
    let before = HELD_RANKS.with(|held| held.replace(held.get() | OWN_WORK)) & OWN_WORK;
    let _held = Held(OWN_WORK & !before);
    compiler_fence(Ordering::SeqCst);
    body()
}

/// What each kind of lock knows of itself.
#[derive(Debug)]
struct LockInfo {
    name: &'static str,
    rank: LockRank,
    /// The thread that alone holds the lock, by an address of its own; 0 when there is none. Written by that thread while
    /// it holds the lock; nobody but that thread learns more from it than that it is another.
    owner: AtomicUsize,
}

impl LockInfo {
    const fn new(name: &'static str, rank: LockRank) -> Self {
        Self {
            name,
            rank,
            owner: AtomicUsize::new(0),
        }
    }

    /// Before the lock is waited for.
    fn enter(&self) -> Held {
        debug_assert!(
            !self.is_owned_by_current_thread(),
            "recursion: {} taken by its owner",
            self.name
        );
        let bit = 1 << self.rank as u8;
        let held = HELD_RANKS.with(|held| held.replace(held.get() | bit));
        debug_assert!(
            (held & !OWN_WORK) >> self.rank as u8 == 0,
            "lock order: {} taken while holding ranks {held:#b}",
            self.name
        );
        // The thread's own handler is to find it before the lock.
        compiler_fence(Ordering::SeqCst);
        Held(bit)
    }

    fn set_owner(&self) {
        self.owner.store(Self::current_thread(), Ordering::Relaxed);
    }

    fn clear_owner(&self) {
        self.owner.store(0, Ordering::Relaxed);
    }

    fn is_owned_by_current_thread(&self) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        owner != 0 && owner == Self::current_thread()
    }

    /// Never 0.
    fn current_thread() -> usize {
        HELD_RANKS.with(|held| std::ptr::from_ref(held).addr())
    }
}

/// From before a lock is waited for until after it is given back: a handler of the host's that comes in between finds that the
/// thread holds it.
#[derive(Debug)]
struct Held(u16);

impl Drop for Held {
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        HELD_RANKS.set(HELD_RANKS.get() & !self.0);
    }
}

/// A mutex that knows its name, its place in the lock order and its owner.
#[doc(alias = "BaseProfilerMutex")]
#[derive(Debug)]
pub(crate) struct NamedMutex<T> {
    info: LockInfo,
    inner: Mutex<T>,
}

impl<T> NamedMutex<T> {
    pub(crate) const fn new(name: &'static str, rank: LockRank, value: T) -> Self {
        Self {
            info: LockInfo::new(name, rank),
            inner: Mutex::new(value),
        }
    }

    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let held = self.info.enter();
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        self.info.set_owner();
        Guard {
            info: &self.info,
            inner,
            _held: held,
        }
    }

    /// The value, for the one who has the mutex for himself: nobody else can look, so nothing is locked.
    #[doc(alias = "BaseProfilerMaybeMutex")]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    #[doc(alias = "IsLockedOnCurrentThread")]
    pub(crate) fn is_locked_on_current_thread(&self) -> bool {
        self.info.is_owned_by_current_thread()
    }
}

/// The mutex, locked.
#[derive(Debug)]
pub(crate) struct Guard<'a, T> {
    info: &'a LockInfo,
    inner: MutexGuard<'a, T>,
    _held: Held,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.info.clear_owner();
    }
}

/// A lock that many threads may share to read, or one may have to change what is in it.
#[doc(alias = "BaseProfilerSharedMutex")]
#[derive(Debug)]
pub(crate) struct NamedRwLock<T> {
    info: LockInfo,
    inner: RwLock<T>,
}

impl<T> NamedRwLock<T> {
    pub(crate) const fn new(name: &'static str, rank: LockRank, value: T) -> Self {
        Self {
            info: LockInfo::new(name, rank),
            inner: RwLock::new(value),
        }
    }

    #[doc(alias = "LockShared")]
    pub(crate) fn lock_shared(&self) -> SharedGuard<'_, T> {
        let held = self.info.enter();
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        SharedGuard { inner, _held: held }
    }

    #[doc(alias = "LockExclusive")]
    pub(crate) fn lock_exclusive(&self) -> ExclusiveGuard<'_, T> {
        let held = self.info.enter();
        let inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        self.info.set_owner();
        ExclusiveGuard {
            info: &self.info,
            inner,
            _held: held,
        }
    }

    #[doc(alias = "IsLockedExclusiveOnCurrentThread")]
    pub(crate) fn is_locked_exclusive_on_current_thread(&self) -> bool {
        self.info.is_owned_by_current_thread()
    }
}

/// The lock, shared.
#[derive(Debug)]
pub(crate) struct SharedGuard<'a, T> {
    inner: RwLockReadGuard<'a, T>,
    _held: Held,
}

impl<T> Deref for SharedGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

/// The lock, held by nobody else.
#[derive(Debug)]
pub(crate) struct ExclusiveGuard<'a, T> {
    info: &'a LockInfo,
    inner: RwLockWriteGuard<'a, T>,
    _held: Held,
}

impl<T> Deref for ExclusiveGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for ExclusiveGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> Drop for ExclusiveGuard<'_, T> {
    fn drop(&mut self) {
        self.info.clear_owner();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn a_lock_out_of_order_is_caught_in_debug_builds() {
        let registry = NamedMutex::new("registry", LockRank::ThreadRegistry, ());
        let chunks = NamedMutex::new("chunks", LockRank::ChunkManager, 7);
        {
            let _registry = registry.lock();
            assert_eq!(*chunks.lock(), 7);
        }
        let wrong = thread::spawn(move || {
            let _chunks = chunks.lock();
            drop(registry.lock());
        });
        assert_eq!(wrong.join().is_err(), cfg!(debug_assertions));
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_lock_that_is_taken_twice_is_caught_by_name_in_debug_builds() {
        let message_of = |wrong: thread::JoinHandle<()>| {
            let panic = wrong.join().expect_err("it is caught");
            panic.downcast_ref::<String>().cloned().unwrap_or_default()
        };
        let mutex = NamedMutex::new("the mutex", LockRank::ThreadData, ());
        let twice = thread::spawn(move || {
            let _first = mutex.lock();
            drop(mutex.lock());
        });
        assert!(message_of(twice).contains("the mutex taken by its owner"));
        let shared = NamedRwLock::new("the shared lock", LockRank::ThreadData, ());
        // A second reader may wait for a writer that waits for the first.
        let twice = thread::spawn(move || {
            let _first = shared.lock_shared();
            drop(shared.lock_shared());
        });
        assert!(message_of(twice).contains("the shared lock taken while holding"));
    }

    #[test]
    fn a_mutex_knows_its_owner() {
        let mutex = NamedMutex::new("mutex", LockRank::ThreadData, ());
        assert!(!mutex.is_locked_on_current_thread() && !is_any_lock_held_on_current_thread());
        let guard = mutex.lock();
        assert!(mutex.is_locked_on_current_thread() && is_any_lock_held_on_current_thread());
        thread::scope(|scope| {
            scope.spawn(|| {
                assert!(
                    !mutex.is_locked_on_current_thread() && !is_any_lock_held_on_current_thread()
                );
            });
        });
        drop(guard);
        assert!(!mutex.is_locked_on_current_thread() && !is_any_lock_held_on_current_thread());
    }

    #[test]
    fn readers_share_and_a_writer_is_alone() {
        let lock = NamedRwLock::new("lock", LockRank::ThreadRegistry, 1);
        let both_read = Barrier::new(2);
        let read = || {
            let guard = lock.lock_shared();
            assert!(
                is_any_lock_held_on_current_thread()
                    && !lock.is_locked_exclusive_on_current_thread()
            );
            // Only if the other has it as well does anybody get on.
            both_read.wait();
            *guard
        };
        thread::scope(|scope| {
            let other = scope.spawn(read);
            assert_eq!((read(), other.join().ok()), (1, Some(1)));
        });
        let add = || {
            for _ in 0..10_000 {
                let mut guard = lock.lock_exclusive();
                assert!(lock.is_locked_exclusive_on_current_thread());
                *guard += 1;
            }
        };
        thread::scope(|scope| {
            scope.spawn(add);
            add();
        });
        assert_eq!(*lock.lock_shared(), 20_001);
    }

    #[test]
    fn who_has_a_mutex_for_himself_locks_nothing() {
        let mut mutex = NamedMutex::new("mutex", LockRank::ThreadData, 1);
        *mutex.get_mut() += 1;
        assert!(!is_any_lock_held_on_current_thread());
        assert_eq!(*mutex.lock(), 2);
    }
}
