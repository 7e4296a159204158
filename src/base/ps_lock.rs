//! The profiler's main lock, and the proof that it is held.
//!
//! There is one, and [`PsLock`] can come from it alone; so whoever holds a `PsLock` may look into every [`PsCell`].
//!
//! **Contract of [`PsCell`]** (cited by the `SAFETY` comments below):
//! - *one lock*: the only way to a `PsLock` is [`PsLock::acquire`], which locks the one static mutex;
//! - *own thread*: a `PsLock` is neither sent to another thread nor lent to one;
//! - *exclusive*: a `&mut PsLock` is needed to change a cell, a `&PsLock` to read it, and the reference that is given
//!   out borrows the lock, so that no two references of which one is mutable live at once.

use std::cell::UnsafeCell;
use std::marker::PhantomData;

use crate::base::locks::{Guard, LockRank, NamedMutex};

static PS_MUTEX: NamedMutex<()> = NamedMutex::new("profiler", LockRank::Ps, ());

/// The proof that this thread holds the profiler's main lock.
#[doc(alias = "PSAutoLock")]
#[doc(alias = "PSLockRef")]
#[derive(Debug)]
pub(crate) struct PsLock {
    #[expect(dead_code, reason = "held for its drop")]
    guard: Guard<'static, ()>,
    own_thread: PhantomData<*const ()>,
}

impl PsLock {
    /// Waits for the lock. Not from the signal handler, nor while holding any other of the profiler's
    /// locks but that of the life cycle.
    pub(crate) fn acquire() -> Self {
        Self {
            guard: PS_MUTEX.lock(),
            own_thread: PhantomData,
        }
    }

    /// Whether the calling thread has it: for assertions.
    #[doc(alias = "IsLockedOnCurrentThread")]
    pub(crate) fn is_held_on_current_thread() -> bool {
        PS_MUTEX.is_locked_on_current_thread()
    }
}

/// A value that only the holder of the [`PsLock`] can touch.
#[derive(Debug)]
pub(crate) struct PsCell<T>(UnsafeCell<T>);

// SAFETY: *one lock*, *own thread* and *exclusive*: all access goes through the lock on the thread that holds it, so
// threads take turns; `T: Send` lets the value be used by each of them.
unsafe impl<T: Send> Sync for PsCell<T> {}

impl<T> PsCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    pub(crate) fn get<'a>(&'a self, _proof: &'a PsLock) -> &'a T {
        // SAFETY: *exclusive*: the shared borrow of the one lock forbids a mutable reference while this one lives.
        unsafe { &*self.0.get() }
    }

    pub(crate) fn get_mut<'a>(&'a self, _proof: &'a mut PsLock) -> &'a mut T {
        // SAFETY: *exclusive*: the mutable borrow of the one lock forbids any other reference while this one lives.
        unsafe { &mut *self.0.get() }
    }
}
