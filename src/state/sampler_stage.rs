//! The protocol between the sampler and a thread that stops it.
//!
//! The sampler may be stuck in the loader, whose lock the stopping thread holds. The stopping
//! thread then gives up waiting, and detaches the session from the sampler.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time after which a thread that waits for the sampler's end checks whether to give up.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// What the sampler is doing, as far as a thread that stops it must know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    /// The sampler is taking samples.
    #[default]
    Working,
    /// The session ended while the sampler was stuck, so the sampler must not access it any more.
    Detached,
    /// The sampler has done its last step.
    Ended,
}

/// How a stopped sampler left the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SamplerEnd {
    /// The thread has ended, or is about to.
    Ended,
    /// The thread is stuck in the loader, and ends by itself later.
    Detached,
}

/// The stage of a session's sampler.
#[derive(Debug, Default)]
pub(crate) struct SamplerStage {
    /// The standard library's mutex: a thread that waits for `parking_lot`'s condition variable can
    /// hang in the child of a fork (`util/lock/fork_safe.rs`). A thread of the application locks it
    /// under the life-cycle lock only, so a signal handler that interrupts it is refused when it calls
    /// the profiler. No handler runs on the sampler's thread.
    stage: Mutex<Stage>,
    has_changed: Condvar,
}

impl SamplerStage {
    /// Records that the sampler has done its last step.
    pub(crate) fn set_ended(&self) {
        *self.lock() = Stage::Ended;
        self.has_changed.notify_all();
    }

    /// Waits until the sampler no longer accesses the session, or until `gives_up` returns true.
    /// Called after the sampler was asked to end. Calls `gives_up` about every
    /// [`CHECK_INTERVAL`], under a lock that the sampler needs to end.
    pub(crate) fn wait_for_end(&self, mut gives_up: impl FnMut() -> bool) -> SamplerEnd {
        let mut stage = self.lock();
        while *stage == Stage::Working {
            let waited = self.has_changed.wait_timeout(stage, CHECK_INTERVAL);
            let timed_out;
            (stage, timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
            if timed_out.timed_out() && gives_up() {
                break;
            }
        }
        if *stage == Stage::Ended {
            return SamplerEnd::Ended;
        }
        *stage = Stage::Detached;
        SamplerEnd::Detached
    }

    /// Returns whether the thread that stopped the session gave up waiting, so that the sampler
    /// must not access the session any more.
    pub(crate) fn is_detached(&self) -> bool {
        *self.lock() == Stage::Detached
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_for_end_detaches_the_sampler_when_it_gives_up() {
        let stage = SamplerStage::default();
        let mut checks = 0;
        let gives_up = || {
            checks += 1;
            checks == 2
        };
        assert!(!stage.is_detached());
        assert_eq!(stage.wait_for_end(gives_up), SamplerEnd::Detached);
        assert!(stage.is_detached());
    }

    #[test]
    fn wait_for_end_returns_once_the_sampler_has_ended() {
        let stage = SamplerStage::default();
        stage.set_ended();
        assert_eq!(stage.wait_for_end(|| false), SamplerEnd::Ended);
        assert!(!stage.is_detached());
    }
}
