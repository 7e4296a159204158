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
    /// list. A thread stays where it is if there is no memory for a longer list.
    pub(crate) fn regroup(&mut self, tick: Tick, any_woke: bool) {
        if any_woke {
            move_some(&mut self.idle, &mut self.active, |thread| !thread.is_idle());
        }
        let is_long_idle = |thread: &ThreadSampler| thread.is_long_idle(tick);
        move_some(&mut self.active, &mut self.idle, is_long_idle);
    }
}

fn move_some(
    from: &mut Vec<ThreadSampler>,
    to: &mut Vec<ThreadSampler>,
    moves: impl Fn(&ThreadSampler) -> bool,
) {
    let count = from.iter().filter(|thread| moves(thread)).count();
    if count > 0 && to.try_reserve(count).is_ok() {
        to.extend(from.extract_if(.., |thread| moves(thread)));
    }
}
