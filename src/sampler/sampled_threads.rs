//! The threads that the sampler samples, those apart that have rested for long.

use crate::sampler::rest::Tick;
use crate::sampler::thread_sampler::ThreadSampler;

/// The threads of the session.
#[derive(Default)]
pub(super) struct Threads {
    pub(super) active: Vec<ThreadSampler>,
    pub(super) resting: Vec<ThreadSampler>,
}

impl Threads {
    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut ThreadSampler> {
        self.active.iter_mut().chain(&mut self.resting)
    }

    /// Puts those apart that have rested for long, and back those that do not rest any more.
    pub(super) fn sort(&mut self, tick: Tick, any_woke: bool) {
        if any_woke {
            self.active
                .extend(self.resting.extract_if(.., |thread| !thread.rests()));
        }
        self.resting
            .extend(self.active.extract_if(.., |thread| thread.rests_long(tick)));
    }
}
