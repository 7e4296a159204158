//! Locks with a name, an owner and a rank in the lock order.
//!
//! The order is life cycle → `PsLock` → `ThreadRegistry` → session data (the slot pool and the
//! session's own lists) → chunk manager → idle unwinders → code ranges → script functions → context
//! labels → event watches → counters → crash facts → waiting tasks → live allocations. Debug builds
//! assert that a thread takes locks in that order, and at most one of each rank. The locks are
//! never poisoned: every critical section leaves its data well formed, even if it panics. The
//! signal handler takes no lock.
//!
//! The locks are `parking_lot`'s; `fork_safe.rs` says what they do in the child of a fork.
//!
//! | kind | use | Gecko's |
//! |---|---|---|
//! | [`NamedMutex`] | exclusive access | `BaseProfilerMutex` |
//! | [`NamedRwLock`] | many readers or one writer | `BaseProfilerSharedMutex` |
//! | [`NamedMutex::get_mut`] | access without locking, by `&mut self` | none |
//!
//! `get_mut` replaces `BaseProfilerMaybeMutex`, which decides at run time whether to lock.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering, compiler_fence};

use parking_lot::lock_api;

use crate::util::lock::fork_safe::{ForkSafe, poll, renew_mutex};

type Mutex<T> = lock_api::Mutex<ForkSafe<parking_lot::RawMutex>, T>;
type MutexGuard<'a, T> = lock_api::MutexGuard<'a, ForkSafe<parking_lot::RawMutex>, T>;
type RwLock<T> = lock_api::RwLock<ForkSafe<parking_lot::RawRwLock>, T>;
type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, ForkSafe<parking_lot::RawRwLock>, T>;
type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, ForkSafe<parking_lot::RawRwLock>, T>;

/// The rank of a lock. A thread may only take a lock of a greater rank than those it holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum LockRank {
    Lifecycle = 0,
    Ps = 1,
    ThreadRegistry = 2,
    SessionData = 3,
    ChunkManager = 4,
    IdleUnwinders = 5,
    CodeRanges = 6,
    ScriptFunctions = 7,
    ContextLabels = 8,
    EventWatches = 9,
    Counters = 10,
    CrashFacts = 11,
    WaitingTasks = 12,
    /// The last one: a free takes this lock, whatever its thread holds.
    LiveAllocations = 13,
}

thread_local! {
    /// The ranks of the locks that the thread holds, as bits. The address of this variable
    /// identifies the thread.
    ///
    /// It has no destructor, so destructors of other thread-locals can still use it.
    static HELD_RANKS: Cell<u16> = const { Cell::new(0) };
}

/// Returns whether the calling thread holds any lock of the profiler, or runs [`as_profiler_work`].
///
/// If so, the caller is code of the application that the profiler has called, such as its allocator
/// or a signal handler. The profiler must then not take a lock for it.
#[doc(alias = "profiler_is_locked_on_current_thread")]
pub(crate) fn is_any_lock_held_on_current_thread() -> bool {
    HELD_RANKS.get() != 0
}

/// Returns whether the calling thread holds any lock of the profiler, or must not wait for one,
/// because of [`refuse_calls_of_current_thread`].
pub(crate) fn holds_any_lock() -> bool {
    HELD_RANKS.get() & !OWN_WORK != 0
}

/// Returns whether the calling thread holds the lock of this rank.
pub(crate) fn holds_rank(rank: LockRank) -> bool {
    HELD_RANKS.get() & (1 << rank as u8) != 0
}

/// Makes [`holds_rank`] return true on this thread until the result is dropped, without a lock.
pub(crate) fn mark_rank(rank: LockRank) -> Held {
    mark_bit(1 << rank as u8)
}

/// Sets a bit of [`HELD_RANKS`] until the result is dropped, if it is not set already.
fn mark_bit(bit: u16) -> Held {
    let before = HELD_RANKS.with(|held| held.replace(held.get() | bit));
    Held(bit & !before)
}

/// Makes [`is_any_lock_held_on_current_thread`] return true on this thread from now on, so that the
/// profiler refuses all calls of the thread. Called in the child of a fork in which locks may stay
/// locked for ever.
pub(crate) fn refuse_calls_of_current_thread() {
    HELD_RANKS.set(HELD_RANKS.get() | REFUSED);
}

/// Bit of [`HELD_RANKS`] that [`refuse_calls_of_current_thread`] sets.
const REFUSED: u16 = 1 << 14;

/// Bit of [`HELD_RANKS`] that is set while the thread runs [`as_profiler_work`], with or without a
/// lock.
const OWN_WORK: u16 = 1 << 15;

/// Runs profiler code that may call the application's allocator without holding a lock.
///
/// If the allocator then calls the profiler, the call is refused, as it would be under a lock.
/// This prevents recursion.
pub(crate) fn as_profiler_work<T>(body: impl FnOnce() -> T) -> T {
    let _held = mark_bit(OWN_WORK);
    compiler_fence(Ordering::SeqCst);
    body()
}

/// Name, rank and owner of a lock.
#[derive(Debug)]
struct LockInfo {
    name: &'static str,
    rank: LockRank,
    /// The thread that holds the lock exclusively, identified by the address of its [`HELD_RANKS`];
    /// 0 if unlocked or shared.
    ///
    /// Only the holder writes it. Relaxed order suffices, because a thread only checks whether it
    /// is the owner itself.
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

    /// Records the lock as held by this thread. Called before waiting for the lock.
    fn enter(&self) -> Held {
        debug_assert!(
            !self.is_owned_by_current_thread(),
            "recursion: {} taken by its owner",
            self.name
        );
        let bit = 1 << self.rank as u8;
        let held = HELD_RANKS.with(|held| held.replace(held.get() | bit));
        debug_assert!(
            (held & !(OWN_WORK | REFUSED)) >> self.rank as u8 == 0,
            "lock order: {} taken while holding ranks {held:#b}",
            self.name
        );
        // A signal handler on this thread must see the rank before the lock is taken.
        compiler_fence(Ordering::SeqCst);
        Held(bit)
    }

    /// Takes the lock by `lock`.
    fn hold<G>(&self, lock: impl FnOnce() -> G) -> NamedGuard<'_, G> {
        let held = self.enter();
        NamedGuard {
            info: self,
            inner: lock(),
            _held: held,
        }
    }

    /// Takes the lock exclusively by `lock`, and notes this thread as its owner.
    fn own<G>(&self, lock: impl FnOnce() -> G) -> NamedGuard<'_, G> {
        let guard = self.hold(lock);
        self.owner.store(Self::current_thread(), Ordering::Relaxed);
        guard
    }

    fn clear_owner(&self) {
        self.owner.store(0, Ordering::Relaxed);
    }

    fn is_owned_by_current_thread(&self) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        owner != 0 && owner == Self::current_thread()
    }

    /// Returns a number that identifies the calling thread; never 0.
    fn current_thread() -> usize {
        HELD_RANKS.with(|held| std::ptr::from_ref(held).addr())
    }
}

/// Marks a lock as held by this thread, from before the thread waits for the lock until after it
/// releases the lock.
///
/// A signal handler of the application that runs in between sees the lock as held.
#[derive(Debug)]
pub(crate) struct Held(u16);

impl Drop for Held {
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        HELD_RANKS.set(HELD_RANKS.get() & !self.0);
    }
}

/// A mutex with a name, a rank and an owner.
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
        self.info.own(|| self.inner.lock())
    }

    /// Locks like [`Self::lock`], but waits by polling. For a lock that the application's allocator
    /// takes: the application may be inside `parking_lot`, whose own locks a parking thread takes.
    pub(crate) fn lock_by_polling(&self) -> Guard<'_, T> {
        self.info.own(|| poll(|| self.inner.try_lock()))
    }

    /// Replaces the value in the child of a fork, even if a thread held the lock. Leaks the old
    /// value. Does nothing in any other process. The calling thread must not hold the lock.
    pub(crate) fn renew_in_child(&self, value: T) {
        if renew_mutex(&self.inner, value) {
            self.info.clear_owner();
        }
    }

    /// Returns the value without locking: `&mut self` is exclusive.
    #[doc(alias = "BaseProfilerMaybeMutex")]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    #[doc(alias = "IsLockedOnCurrentThread")]
    pub(crate) fn is_locked_on_current_thread(&self) -> bool {
        self.info.is_owned_by_current_thread()
    }
}

/// Releases a lock when dropped.
#[derive(Debug)]
pub(crate) struct NamedGuard<'a, G> {
    info: &'a LockInfo,
    inner: G,
    _held: Held,
}

/// Releases a [`NamedMutex`] when dropped.
pub(crate) type Guard<'a, T> = NamedGuard<'a, MutexGuard<'a, T>>;

impl<G: Deref> Deref for NamedGuard<'_, G> {
    type Target = G::Target;
    fn deref(&self) -> &G::Target {
        &self.inner
    }
}

impl<G: DerefMut> DerefMut for NamedGuard<'_, G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.inner
    }
}

impl<G> Drop for NamedGuard<'_, G> {
    fn drop(&mut self) {
        // A shared lock has no owner, so this changes nothing for it.
        self.info.clear_owner();
    }
}

/// A lock with a name, a rank and an owner, for many readers or one writer.
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
    pub(crate) fn lock_shared(&self) -> NamedGuard<'_, RwLockReadGuard<'_, T>> {
        self.info.hold(|| self.inner.read())
    }

    #[doc(alias = "LockExclusive")]
    pub(crate) fn lock_exclusive(&self) -> ExclusiveGuard<'_, T> {
        self.info.own(|| self.inner.write())
    }

    #[doc(alias = "IsLockedExclusiveOnCurrentThread")]
    pub(crate) fn is_locked_exclusive_on_current_thread(&self) -> bool {
        self.info.is_owned_by_current_thread()
    }
}

/// Releases an exclusively locked [`NamedRwLock`] when dropped.
pub(crate) type ExclusiveGuard<'a, T> = NamedGuard<'a, RwLockWriteGuard<'a, T>>;

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn lock_out_of_order_panics_in_debug_builds() {
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
    fn lock_taken_twice_panics_with_its_name_in_debug_builds() {
        let message_of = |wrong: thread::JoinHandle<()>| {
            let panic = wrong.join().expect_err("the second lock panics");
            panic.downcast_ref::<String>().cloned().unwrap_or_default()
        };
        let mutex = NamedMutex::new("the mutex", LockRank::SessionData, ());
        let twice = thread::spawn(move || {
            let _first = mutex.lock();
            drop(mutex.lock());
        });
        assert!(message_of(twice).contains("the mutex taken by its owner"));
        let shared = NamedRwLock::new("the shared lock", LockRank::SessionData, ());
        // A second shared lock may wait for a writer that waits for the first one.
        let twice = thread::spawn(move || {
            let _first = shared.lock_shared();
            drop(shared.lock_shared());
        });
        assert!(message_of(twice).contains("the shared lock taken while holding"));
    }

    #[test]
    fn mutex_is_locked_on_its_owner_thread_only() {
        let mutex = NamedMutex::new("mutex", LockRank::SessionData, ());
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
    fn readers_share_the_lock_and_writers_exclude_each_other() {
        let lock = NamedRwLock::new("lock", LockRank::ThreadRegistry, 1);
        let both_read = Barrier::new(2);
        let read = || {
            let guard = lock.lock_shared();
            assert!(
                is_any_lock_held_on_current_thread()
                    && !lock.is_locked_exclusive_on_current_thread()
            );
            // Both readers pass only while both hold the lock.
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
    fn get_mut_does_not_lock() {
        let mut mutex = NamedMutex::new("mutex", LockRank::SessionData, 1);
        *mutex.get_mut() += 1;
        assert!(!is_any_lock_held_on_current_thread());
        assert_eq!(*mutex.lock(), 2);
    }
}
