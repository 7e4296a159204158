//! The raw locks below the named ones: `parking_lot`'s, made safe to use in the child of a fork.
//!
//! `parking_lot` keeps waiting threads in a table that all its locks in the process share. A thread
//! of the parent may hold a bucket of that table during the fork, and threads that the child lacks
//! may still be queued there. In a test that forked while locks were contended, about 1 child in
//! 100 hung, even with locks at new addresses. So the child reinitializes the locks instead of
//! unlocking them, and waits for a lock by polling it, which does not use the table. Of 100,000
//! such children, none hung: see `contended_locks_are_usable_in_100_000_forked_children`.
//!
//! **Contract** (cited below):
//! - *single thread*: while [`LocksInChild`] exists, the process has only the thread that created
//!   it.

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_utils::Backoff;
use parking_lot::lock_api::{self, RawMutex, RawRwLock};

/// Whether the process is the child of a fork, where waiting threads poll.
static IS_FORKED_CHILD: AtomicBool = AtomicBool::new(false);
/// Whether the release of a lock reinitializes it.
static RENEWS: AtomicBool = AtomicBool::new(false);

/// Time between two attempts of a polling thread to take a lock. The intervals between the first
/// attempts are shorter.
const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// Reinitializes each lock that is released while this value exists. Such a lock forgets the
/// threads that wait for it, which do not exist in the child of a fork. From [`Self::begin`] on,
/// threads of the child wait for a lock by polling it.
#[derive(Debug)]
pub(crate) struct LocksInChild(());

impl LocksInChild {
    /// # Safety
    /// - *single thread*: the caller runs in the child of a fork, and no other thread exists until
    ///   the returned value is dropped.
    pub(crate) unsafe fn begin() -> Self {
        note_forked_child();
        RENEWS.store(true, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for LocksInChild {
    fn drop(&mut self) {
        RENEWS.store(false, Ordering::Relaxed);
    }
}

/// A raw lock of `parking_lot` that the child of a fork can reinitialize.
#[derive(Debug)]
pub(crate) struct ForkSafe<R>(UnsafeCell<R>);

// SAFETY: shared references to the raw lock may be used on any thread, because `R` is `Sync`. The
// only mutable access is in `renew`, where no other thread exists.
unsafe impl<R: Sync> Sync for ForkSafe<R> {}

impl<R> ForkSafe<R> {
    const fn new(raw: R) -> Self {
        Self(UnsafeCell::new(raw))
    }

    fn raw(&self) -> &R {
        // SAFETY: `renew` is the only function that writes the cell, and it ends before another
        // reference is made (*single thread*).
        unsafe { &*self.0.get() }
    }

    /// Replaces the raw lock by `unlocked` while a [`LocksInChild`] exists. Returns whether it did.
    #[inline]
    fn renew(&self, unlocked: R) -> bool {
        let renews = RENEWS.load(Ordering::Relaxed);
        if renews {
            // SAFETY: *single thread*: no other reference to the raw lock is in use.
            unsafe { *self.0.get() = unlocked };
        }
        renews
    }
}

/// Lets [`is_forked_child`] return true from now on.
pub(crate) fn note_forked_child() {
    IS_FORKED_CHILD.store(true, Ordering::Relaxed);
}

/// Returns whether this process is the child of a fork. A lock of another library may be held for
/// ever there, by a thread that the child lacks.
pub(crate) fn is_forked_child() -> bool {
    IS_FORKED_CHILD.load(Ordering::Relaxed)
}

thread_local! {
    /// Whether the thread may park. It has no destructor, so other destructors can still read it.
    static MAY_PARK: Cell<bool> = const { Cell::new(false) };
}

/// Makes `parking_lot` allocate its data about the calling thread now. Otherwise it would do so
/// when the thread first parks, and end the process if the allocation failed. The sampler, the
/// event watcher and registered threads call this; a thread that has not called it waits for a lock
/// by polling it. Waits for the loader, because the C library does so when a thread-local gets its
/// destructor.
pub(crate) fn prepare_to_wait() {
    if !is_forked_child() && !MAY_PARK.get() {
        let mutex = parking_lot::Mutex::new(());
        parking_lot::Condvar::new().wait_for(&mut mutex.lock(), Duration::ZERO);
        MAY_PARK.set(true);
    }
}

/// Waits for a lock after the first attempt has failed.
#[cold]
fn wait(try_lock: impl Fn() -> bool, park: impl FnOnce()) {
    if is_forked_child() || !MAY_PARK.get() {
        poll(|| try_lock().then_some(()));
    } else {
        park();
    }
}

/// Replaces the value of a mutex in the child of a fork, even if a thread held the mutex. Leaks the
/// old value, which a thread that the child lacks may have been changing. Does nothing, and returns
/// false, unless a [`LocksInChild`] exists.
pub(super) fn renew_mutex<T>(
    mutex: &lock_api::Mutex<ForkSafe<parking_lot::RawMutex>, T>,
    value: T,
) -> bool {
    if !RENEWS.load(Ordering::Relaxed) {
        return false;
    }
    // SAFETY: *single thread*: the threads that used the mutex do not exist.
    unsafe { mutex.raw() }.renew(parking_lot::RawMutex::INIT);
    std::mem::forget(std::mem::replace(&mut *mutex.lock(), value));
    true
}

/// Tries to take a lock until that succeeds.
pub(super) fn poll<T>(try_lock: impl Fn() -> Option<T>) -> T {
    let backoff = Backoff::new();
    loop {
        if let Some(locked) = try_lock() {
            return locked;
        }
        if backoff.is_completed() {
            std::thread::sleep(POLL_INTERVAL);
        } else {
            backoff.snooze();
        }
    }
}

// SAFETY: each method forwards to the raw mutex. A reinitialized mutex was held by the only thread
// of the process, which is releasing it.
unsafe impl RawMutex for ForkSafe<parking_lot::RawMutex> {
    const INIT: Self = Self::new(parking_lot::RawMutex::INIT);
    type GuardMarker = <parking_lot::RawMutex as RawMutex>::GuardMarker;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            wait(|| self.try_lock(), || self.raw().lock());
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.raw().try_lock()
    }

    #[inline]
    unsafe fn unlock(&self) {
        if !self.renew(parking_lot::RawMutex::INIT) {
            // SAFETY: the caller holds the lock.
            unsafe { self.raw().unlock() }
        }
    }
}

// SAFETY: each method forwards to the raw lock. A reinitialized lock was held exclusively by the
// only thread of the process, which is releasing it.
unsafe impl RawRwLock for ForkSafe<parking_lot::RawRwLock> {
    const INIT: Self = Self::new(parking_lot::RawRwLock::INIT);
    type GuardMarker = <parking_lot::RawRwLock as RawRwLock>::GuardMarker;

    #[inline]
    fn lock_shared(&self) {
        if !self.try_lock_shared() {
            wait(|| self.try_lock_shared(), || self.raw().lock_shared());
        }
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.raw().try_lock_shared()
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller holds the lock shared.
        unsafe { self.raw().unlock_shared() }
    }

    #[inline]
    fn lock_exclusive(&self) {
        if !self.try_lock_exclusive() {
            wait(|| self.try_lock_exclusive(), || self.raw().lock_exclusive());
        }
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        self.raw().try_lock_exclusive()
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        if !self.renew(parking_lot::RawRwLock::INIT) {
            // SAFETY: the caller holds the lock exclusively.
            unsafe { self.raw().unlock_exclusive() }
        }
    }
}
