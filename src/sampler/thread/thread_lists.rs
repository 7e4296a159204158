//! The threads that the sampler samples. Long-idle threads are kept in a separate list.

use crate::sampler::encode::Tick;
use crate::sampler::thread::thread_sampler::ThreadSampler;

/// The sampled threads of the session.
#[derive(Default)]
pub(crate) struct Threads {
    pub(crate) active: Vec<ThreadSampler>,
    pub(crate) idle: Vec<ThreadSampler>,
}

impl Threads {
    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut ThreadSampler> {
        self.active.iter_mut().chain(&mut self.idle)
    }

    /// Moves long-idle threads to the idle list, and returns threads that have run to the active
    /// list.
    pub(crate) fn regroup(&mut self, tick: Tick, any_woke: bool) {
        if any_woke {
            self.active
                .extend(self.idle.extract_if(.., |thread| !thread.is_idle()));
        }
        self.idle.extend(
            self.active
                .extract_if(.., |thread| thread.is_long_idle(tick)),
        );
    }
}
