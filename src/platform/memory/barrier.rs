//! A memory fence on all threads of the process, issued by the kernel. Frequent code that would
//! otherwise need a fence does without one, and the rare code on the other side pays.
//!
//! **Contract of the calls** (cited below):
//! - *no memory*: the call reads and writes no memory.

use once_cell::race::OnceBool;

use crate::platform::procfs::is_only_thread;
use crate::platform::sandbox::may_make_uncommon_call;

const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
const PRIVATE_EXPEDITED: i32 = 1 << 3;

/// Whether the kernel knows that the process makes the call.
static IS_REGISTERED: OnceBool = OnceBool::new();

/// Lets the first [`heavy_barrier`] be as fast as the others. In a process of several threads, the
/// kernel first waits until each processor has switched threads: for milliseconds, and on a machine
/// without an idle processor for seconds. The caller holds no lock.
pub(crate) fn prepare_heavy_barrier() {
    if IS_REGISTERED.get().is_none() && may_make_uncommon_call() {
        let _ = IS_REGISTERED.set(membarrier(REGISTER_PRIVATE_EXPEDITED));
    }
}

/// Calls [`prepare_heavy_barrier`], unless the kernel would wait.
pub(crate) fn prepare_heavy_barrier_without_waiting() {
    if IS_REGISTERED.get().is_none() && is_only_thread() {
        prepare_heavy_barrier();
    }
}

/// Issues a full fence on all other running threads before it returns. Threads that are not running
/// executed one when they were switched out. Returns false if the kernel does not support this, and
/// in a sandbox, which may kill the process for the call. Cost: about 1 µs, occasionally 20.
pub(crate) fn heavy_barrier() -> bool {
    prepare_heavy_barrier();
    // The registration may have taken a while.
    IS_REGISTERED.get() == Some(true) && may_make_uncommon_call() && membarrier(PRIVATE_EXPEDITED)
}

/// Calls the kernel directly: neither `nix` nor the C library has this call.
fn membarrier(command: i32) -> bool {
    // SAFETY: *no memory*.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

    /// Each of two threads stores a value, then loads what the other one stored. At least one of
    /// them sees the other's store: the one without a fence, or the one with the barrier.
    #[test]
    fn heavy_barrier_orders_stores_and_loads_of_two_threads() {
        if !heavy_barrier() {
            return;
        }
        static ROUNDS: [[AtomicU64; 2]; 3000] = [const { [const { AtomicU64::new(0) }; 2] }; 3000];
        let light = std::thread::spawn(|| {
            let store_then_load = |[own, others]: &[AtomicU64; 2]| {
                own.store(1, Ordering::Relaxed);
                compiler_fence(Ordering::SeqCst);
                others.load(Ordering::Relaxed)
            };
            ROUNDS.iter().map(store_then_load).collect::<Vec<_>>()
        });
        let heavy: Vec<u64> = ROUNDS
            .iter()
            .map(|[others, own]| {
                own.store(1, Ordering::Relaxed);
                assert!(heavy_barrier());
                others.load(Ordering::Relaxed)
            })
            .collect();
        let light = light.join().expect("thread");
        assert!(
            light
                .iter()
                .zip(&heavy)
                .all(|(light, heavy)| light + heavy > 0)
        );
    }
}
