//! Mutexes with a name, an owner and a place in the lock order.
//!
//! The order is life cycle → `PsLock` → `ThreadRegistry` → thread data → chunk manager → unwinder → loader → code ranges →
//! script functions → event watches. Debug builds assert that a thread takes them in that order and none twice. A lock is never poisoned:
//! what a panic left behind is still well formed, as every critical section here is. None of them is taken in the signal
//! handler.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

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
    static HELD_RANKS: Cell<u16> = const { Cell::new(0) };
}

fn enter(rank: LockRank, name: &str) {
    if cfg!(debug_assertions) {
        // A thread whose thread-locals are gone is not checked.
        let held = HELD_RANKS.try_with(|held| held.replace(held.get() | 1 << rank as u8)).unwrap_or(0);
        debug_assert!(held >> rank as u8 == 0, "lock order: {name} taken while holding ranks {held:#b}");
    }
}

fn leave(rank: LockRank) {
    if cfg!(debug_assertions) {
        let _ = HELD_RANKS.try_with(|held| held.set(held.get() & !(1 << rank as u8)));
    }
}

/// A mutex that knows its name and its place in the lock order.
#[derive(Debug)]
pub(crate) struct NamedMutex<T> {
    name: &'static str,
    rank: LockRank,
    inner: Mutex<T>,
}

impl<T> NamedMutex<T> {
    pub(crate) const fn new(name: &'static str, rank: LockRank, value: T) -> Self {
        Self { name, rank, inner: Mutex::new(value) }
    }

    pub(crate) fn lock(&self) -> Guard<'_, T> {
        enter(self.rank, self.name);
        Guard { rank: self.rank, inner: self.inner.lock().unwrap_or_else(PoisonError::into_inner) }
    }
}

/// The lock, held.
#[derive(Debug)]
pub(crate) struct Guard<'a, T> {
    rank: LockRank,
    inner: MutexGuard<'a, T>,
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
        leave(self.rank);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_out_of_order_is_caught_in_debug_builds() {
        let registry = NamedMutex::new("registry", LockRank::ThreadRegistry, ());
        let chunks = NamedMutex::new("chunks", LockRank::ChunkManager, 7);
        {
            let _registry = registry.lock();
            assert_eq!(*chunks.lock(), 7);
        }
        let wrong = std::thread::spawn(move || {
            let _chunks = chunks.lock();
            drop(registry.lock());
        });
        assert_eq!(wrong.join().is_err(), cfg!(debug_assertions));
    }
}
