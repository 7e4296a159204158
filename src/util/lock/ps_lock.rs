//! The profiler's main lock, and the proof of holding it.
//!
//! The process has one such lock, and only locking it creates a [`PsLock`]. So the holder of a
//! `PsLock` may access every [`PsCell`].
//!
//! **Contract of [`PsCell`]** (cited by the `SAFETY` comments below):
//! - *one lock*: the only way to a `PsLock` is [`PsLock::acquire`], which locks the one static
//!   mutex;
//! - *own thread*: a `PsLock` is neither `Send` nor `Sync`, so it stays on the thread that acquired
//!   it;
//! - *exclusive*: changing a cell needs a `&mut PsLock`, reading it a `&PsLock`. The returned
//!   reference borrows the lock, so a mutable reference never coexists with another one.

use std::cell::UnsafeCell;
use std::marker::PhantomData;

#[cfg(all(test, loom))]
use loom_mutex::{Guard, PS_MUTEX};

#[cfg(not(all(test, loom)))]
use crate::util::lock::named_locks::{Guard, LockRank, NamedMutex};

#[cfg(not(all(test, loom)))]
static PS_MUTEX: NamedMutex<()> = NamedMutex::new("profiler", LockRank::Ps, ());

/// The main lock in a loom model, where all threads share one thread of the system.
#[cfg(all(test, loom))]
mod loom_mutex {
    use loom::sync::{Mutex, MutexGuard};

    pub(super) type Guard<'a, T> = MutexGuard<'a, T>;

    pub(super) struct PsMutex;
    pub(super) static PS_MUTEX: PsMutex = PsMutex;

    loom::lazy_static! {
        static ref MUTEX: Mutex<()> = Mutex::new(());
    }

    impl PsMutex {
        pub(super) fn lock(&self) -> Guard<'static, ()> {
            MUTEX.lock().expect("no panic under the lock")
        }

        /// Returns whether any thread holds the lock: loom does not tell which one.
        pub(super) fn is_locked_on_current_thread(&self) -> bool {
            MUTEX.try_lock().is_err()
        }
    }
}

/// Proof that the current thread holds the profiler's main lock.
#[doc(alias = "PSAutoLock")]
#[doc(alias = "PSLockRef")]
#[derive(Debug)]
pub(crate) struct PsLock {
    _guard: Guard<'static, ()>,
    own_thread: PhantomData<*const ()>,
}

impl PsLock {
    /// Waits for the lock.
    ///
    /// Must not be called in the signal handler. The only other lock of the profiler that the
    /// caller may hold is the life-cycle lock.
    pub(crate) fn acquire() -> Self {
        Self {
            _guard: PS_MUTEX.lock(),
            own_thread: PhantomData,
        }
    }

    /// Returns whether the calling thread holds the lock; for assertions.
    #[doc(alias = "IsLockedOnCurrentThread")]
    pub(crate) fn is_held_on_current_thread() -> bool {
        PS_MUTEX.is_locked_on_current_thread()
    }
}

/// A value that only the holder of the [`PsLock`] can access.
#[derive(Debug)]
pub(crate) struct PsCell<T>(UnsafeCell<T>);

// SAFETY: *one lock*, *own thread* and *exclusive*: only the thread that holds the lock accesses
// the value, so accesses of different threads never overlap. `T: Send` allows each of these threads
// to use the value.
unsafe impl<T: Send> Sync for PsCell<T> {}

impl<T> PsCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    pub(crate) fn get<'a>(&'a self, _proof: &'a PsLock) -> &'a T {
        // SAFETY: *exclusive*: the shared borrow of the one lock forbids a mutable reference while
        // this one lives.
        unsafe { &*self.0.get() }
    }

    pub(crate) fn get_mut<'a>(&'a self, _proof: &'a mut PsLock) -> &'a mut T {
        // SAFETY: *exclusive*: the mutable borrow of the one lock forbids any other reference while
        // this one lives.
        unsafe { &mut *self.0.get() }
    }
}
