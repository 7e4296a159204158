//! A wait for a lock that always ends.
//!
//! The integrations are also built without the profiler, which has no named locks then. So they use
//! locks of the standard library, and never block on them.

use std::sync::{TryLockError, TryLockResult};
use std::time::Duration;

/// Limits of the wait for a lock: attempts that yield, and that sleep 1 ms each.
///
/// The locks are held for a few stores, seldom for an allocation. A holder that is preempted
/// releases the lock once it runs again. The wait of 0.2 s expires only in the child of a fork whose
/// parent's thread held the lock; the child then does without it. A timed wait of `parking_lot`
/// would not end there, if that thread also held a bucket of its parking table.
const MAX_YIELDS: u32 = 100;
const MAX_SLEEPS: u32 = 200;

/// Tries to take a lock until that succeeds, also if a thread has panicked with the lock. Returns
/// `None` if the wait expires.
#[inline]
pub(crate) fn poll_for_lock<Guard>(
    mut try_lock: impl FnMut() -> TryLockResult<Guard>,
) -> Option<Guard> {
    unpoisoned(try_lock()).or_else(|| wait_for_lock(try_lock))
}

#[cold]
fn wait_for_lock<Guard>(mut try_lock: impl FnMut() -> TryLockResult<Guard>) -> Option<Guard> {
    (0..MAX_YIELDS + MAX_SLEEPS).find_map(|tries| {
        if tries < MAX_YIELDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
        unpoisoned(try_lock())
    })
}

/// Returns the guard of an attempt that has succeeded, also if a thread has panicked with the lock.
#[inline]
pub(crate) fn unpoisoned<Guard>(attempt: TryLockResult<Guard>) -> Option<Guard> {
    match attempt {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn wait_for_a_lock_that_stays_locked_ends() {
        let mutex = Mutex::new(1);
        let guard = mutex.lock();
        assert!(poll_for_lock(|| mutex.try_lock()).is_none());
        drop(guard);
        let guard = poll_for_lock(|| mutex.try_lock());
        assert_eq!(guard.as_deref(), Some(&1));
    }
}
