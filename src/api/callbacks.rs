//! Being told what happens to the profiler.

use crate::api::engine;
use crate::base::{ProfilingState, ProfilingStates, SamplingState};

/// Has the callback told of these states from now on, until [`profiler_remove_state_change_callback`] with its id.
///
/// | state | told |
/// |---|---|
/// | [`AlreadyActive`] | to the new callback alone, by this function, if the profiler is active |
/// | [`Started`] | after a start, or a start anew |
/// | [`Pausing`], [`Resumed`] | before a pause, after its end; not where nothing changes, nor for a pause of the sampling alone |
/// | [`GeneratingProfile`] | before each profile is taken |
/// | [`Stopping`] | before a stop; not before a start anew, but after one that failed when the session before had ended |
/// | [`ShuttingDown`] | in `profiler_shutdown`, after `Stopping` and before its file is written |
/// | [`RemovingCallback`] | to a callback that was removed, by that function |
///
/// Callbacks are told in the order in which they were added, on the thread that calls the function, which goes on when
/// they have returned. They stay from session to session, and over a shutdown. An id may be anything; 0 stands for a
/// callback that is never removed, and an id that is used twice stands for both.
///
/// A callback runs under no lock and may call every function of the profiler. What happens by that is told from within, but
/// a callback is not told of a state that it is just being told of on this thread, nor is anything told at a depth of more
/// than 16; so one that stops the profiler when it is told `Stopping`, say, does not call itself for ever. Threads that
/// change the state at the same time tell it at the same time. If a callback panics, the panic ends there; what the profiler
/// was about to do is done.
///
/// From any thread; takes the profiler's lock for a moment. Idea: Gecko's `profiler_add_state_change_callback`, which tells
/// `Pausing` also when there is nothing to pause, and where callbacks may not add or remove any.
///
/// [`AlreadyActive`]: ProfilingState::AlreadyActive
/// [`Started`]: ProfilingState::Started
/// [`Pausing`]: ProfilingState::Pausing
/// [`Resumed`]: ProfilingState::Resumed
/// [`GeneratingProfile`]: ProfilingState::GeneratingProfile
/// [`Stopping`]: ProfilingState::Stopping
/// [`ShuttingDown`]: ProfilingState::ShuttingDown
/// [`RemovingCallback`]: ProfilingState::RemovingCallback
pub fn profiler_add_state_change_callback(
    states: ProfilingStates,
    callback: impl Fn(ProfilingState) + Send + Sync + 'static,
    id: u64,
) {
    engine::add_state_change_callback(states, id, Box::new(callback));
}

/// Removes the callbacks with this id, and tells them so. An unknown id, and 0, are harmless.
///
/// Another thread that was just telling a callback something may still be at it when this returns. From any thread; takes
/// the profiler's lock for a moment. Idea: Gecko's `profiler_remove_state_change_callback`.
pub fn profiler_remove_state_change_callback(id: u64) {
    engine::remove_state_change_callback(id);
}

/// Calls `callback` once, when the sampler has been through a whole loop that began after this; false, and it is dropped
/// uncalled, when the profiler is not active, is just being stopped, or its sampler has failed.
///
/// What it is told says what the loop did. With [`SamplingCompleted`](SamplingState::SamplingCompleted), samples that were
/// taken after this call are in the buffer, of every profiled thread that has answered: it comes after the tick that
/// follows the loop's, so within three intervals. In a pause, and where no stacks are sampled, it comes after the loop.
///
/// Callbacks are called in the order in which they were added, on the sampler thread, where signals are blocked, under no
/// lock; they may call every function of the profiler, also those that stop or start it. No samples are taken while one
/// runs, so it should be short; but nobody who stops the profiler waits for it.
/// Those that are left over when the session ends get [`JustStopped`](SamplingState::JustStopped) on the thread that ends it,
/// before that function returns; they are lost in the child of a `fork`. If a callback panics, the panic ends there.
///
/// From any thread; takes the profiler's lock for a moment. Idea: Gecko's `profiler_callback_after_sampling`.
pub fn profiler_callback_after_sampling(
    callback: impl FnOnce(SamplingState) + Send + 'static,
) -> bool {
    engine::callback_after_sampling(Box::new(callback))
}
