//! A fence in all threads at once, by the kernel, so that those who need it often do without.
//!
//! **Contract of the calls** (cited below):
//! - *no memory*: the call reads and writes none.

use std::sync::OnceLock;

use crate::platform::guarded_memory::follow_sandbox_now;

const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
const PRIVATE_EXPEDITED: i32 = 1 << 3;

/// Has every other thread of the process that runs do what a full fence does, between two of its instructions, before this
/// returns; those that do not run have done so. False where the kernel does not, and in a sandbox, which may kill for the call. About
/// 1 µs, and 20 now and then.
pub(crate) fn heavy_barrier() -> bool {
    if follow_sandbox_now() {
        return false;
    }
    static IS_REGISTERED: OnceLock<bool> = OnceLock::new();
    *IS_REGISTERED.get_or_init(|| membarrier(REGISTER_PRIVATE_EXPEDITED))
        && membarrier(PRIVATE_EXPEDITED)
}

fn membarrier(command: i32) -> bool {
    // SAFETY: *no memory*.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

    /// Of two threads that each store and then look at what the other stored, one sees it: the one without a fence of its own,
    /// or the one with the barrier.
    #[test]
    fn a_store_before_a_look_is_seen_by_one_of_both() {
        if !heavy_barrier() {
            return;
        }
        static ROUNDS: [[AtomicU64; 2]; 3000] = [const { [const { AtomicU64::new(0) }; 2] }; 3000];
        let light = std::thread::spawn(|| {
            let look = |[own, others]: &[AtomicU64; 2]| {
                own.store(1, Ordering::Relaxed);
                compiler_fence(Ordering::SeqCst);
                others.load(Ordering::Relaxed)
            };
            ROUNDS.iter().map(look).collect::<Vec<_>>()
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
