//! Callbacks on changes of state and after sampling.

use crate::api::backend;
use crate::types::{ProfilingState, ProfilingStates, SamplingState};

/// Adds a callback for changes to any of `states`, until [`profiler_remove_state_change_callback`]
/// removes it by its id.
///
/// | State | When the callback is called |
/// |---|---|
/// | [`AlreadyActive`] | by this function, for the new callback only, if the profiler is active |
/// | [`Started`] | after a start or a restart |
/// | [`Pausing`], [`Resumed`] | before a pause, and after it; not for a call that changes nothing, and not for a pause of sampling only |
/// | [`GeneratingProfile`] | before each profile is taken |
/// | [`Stopping`] | before a stop; not before a restart, but after a restart that failed and ended the old session |
/// | [`ShuttingDown`] | in `profiler_shutdown`, after `Stopping` and before the file or report of the environment is written |
/// | [`RemovingCallback`] | by the function that removes the callback |
///
/// The thread that changes the state calls the callbacks, in the order in which they were added,
/// and waits for them. Callbacks outlive sessions and a shutdown. `id` may be any number. A
/// callback with the id 0 is never removed. Two callbacks may share an id, and are then removed
/// together.
///
/// A callback holds no lock of the profiler and may call any of its functions. If a callback
/// changes the state, the callbacks for that change run before it continues. To prevent endless
/// recursion, a callback is not called for a state that it is already handling on the same thread,
/// and calls nest at most 16 deep. Threads that change the state at the same time call the
/// callbacks at the same time. A panic of a callback is caught, and the profiler proceeds.
///
/// May be called from any thread. Cost: the profiler's lock for a moment. Idea: Gecko's
/// `profiler_add_state_change_callback`, which reports `Pausing` even if nothing changes, and whose
/// callbacks may not add or remove callbacks.
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
    backend::add_state_change_callback(states, id, Box::new(callback));
}

/// Removes all callbacks with this id, and calls them with
/// [`RemovingCallback`](ProfilingState::RemovingCallback). Ignores an unknown id, and 0.
///
/// Another thread may still be running such a callback when this function returns. May be called
/// from any thread. Cost: the profiler's lock for a moment. Idea: Gecko's
/// `profiler_remove_state_change_callback`.
pub fn profiler_remove_state_change_callback(id: u64) {
    backend::remove_state_change_callback(id);
}

/// Calls `callback` once, after the next complete sampling loop. Returns `false`, and drops the
/// callback without calling it, if the profiler is inactive or stopping, if its sampler has failed,
/// or if the system refuses to create a thread.
///
/// The argument reports the outcome of the loop. With
/// [`SamplingCompleted`](SamplingState::SamplingCompleted), the buffer contains a sample, taken
/// after this call, of every profiled thread that has answered. To ensure that, the callback runs
/// after the tick that follows the loop, at most three intervals from now. In a pause, and in a
/// session without stack sampling, it runs directly after the loop.
///
/// Callbacks run in the order in which they were added, one after the other, on a thread of the
/// profiler, where all signals but those of faults are blocked. They hold no lock, and may call any
/// function of the profiler, including those that start or stop it. Sampling continues while a
/// callback runs. A stop does not wait for a running callback. Callbacks that have not begun when
/// the session ends are called on the thread that ends it, before that call returns: with
/// [`JustStopped`](SamplingState::JustStopped), unless their loop was already complete. Pending
/// callbacks are lost in the child of a `fork`. A panic of a callback is caught.
///
/// May be called from any thread. Cost: the profiler's lock for a moment; the first callback of a
/// session creates the thread. Idea: Gecko's `profiler_callback_after_sampling`.
pub fn profiler_callback_after_sampling(
    callback: impl FnOnce(SamplingState) + Send + 'static,
) -> bool {
    backend::callback_after_sampling(Box::new(callback))
}
