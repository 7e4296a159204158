//! Callbacks that wait for a loop of the sampler, and the protocol for stopping the sampler during
//! a callback.
//!
//! A callback may run for a long time and may call anything, including functions that stop the
//! profiler. A thread that stops the sampler therefore does not wait for a callback. During a
//! callback the sampler does not access the session, so the session can be detached from the
//! sampler at that point.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::types::SamplingState;
use crate::util::{LockRank, NamedMutex, run_callback};

/// Time after which a thread that waits for the sampler's end checks whether to give up.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// A callback that is called once.
pub(crate) type AfterSamplingCallback = Box<dyn FnOnce(SamplingState) + Send>;

/// Number of forks between the first process and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The process that an object belongs to, identified by its number of forks.
#[derive(Clone, Copy, Default, Debug)]
struct OwnerProcess(u32);

impl OwnerProcess {
    fn current() -> Self {
        Self(FORKS.load(Ordering::Acquire))
    }

    /// Returns whether the object belongs to an ancestor of this process. Its threads do not exist
    /// here, and its locks may be held for ever.
    fn is_ancestor(self) -> bool {
        FORKS.load(Ordering::Acquire) != self.0
    }
}

/// Leaves pending callbacks to the parent. Called in the child of a fork. If the sampler thread
/// forked in a callback, its copy in the child stops acting as a sampler.
pub(crate) fn disown_callbacks_in_child() {
    FORKS.fetch_add(1, Ordering::AcqRel);
}

/// Runs callbacks one after the other. If one of them forks, the child neither runs nor drops the
/// remaining ones.
fn call_all(
    owner: OwnerProcess,
    mut callbacks: impl Iterator<Item = (AfterSamplingCallback, SamplingState)>,
) {
    while !owner.is_ancestor() {
        let Some((callback, state)) = callbacks.next() else {
            return;
        };
        run_callback(|| callback(state));
    }
    std::mem::forget(callbacks);
}

/// Callbacks that no loop will run. They are called with `JustStopped` when this value is dropped;
/// the caller must not hold a lock then.
#[derive(Default)]
#[must_use = "drop the callbacks without holding a lock"]
pub(crate) struct UnservedCallbacks {
    owner: OwnerProcess,
    callbacks: Vec<AfterSamplingCallback>,
}

impl Drop for UnservedCallbacks {
    fn drop(&mut self) {
        let callbacks = std::mem::take(&mut self.callbacks).into_iter();
        call_all(
            self.owner,
            callbacks.map(|callback| (callback, SamplingState::JustStopped)),
        );
    }
}

/// The after-sampling callbacks of a session, and the stage of its sampler.
pub(crate) struct AfterSampling {
    queue: NamedMutex<Queue>,
    /// The standard library's mutex: a thread that waits for `parking_lot`'s condition variable can
    /// hang in the child of a fork (`util/lock/fork_safe.rs`).
    stage: Mutex<Stage>,
    stage_changed: Condvar,
    owner: OwnerProcess,
}

#[derive(Default)]
struct Queue {
    /// The callbacks, oldest first, each with the number of the first loop that began after it was
    /// added.
    callbacks: VecDeque<(Option<u64>, AfterSamplingCallback)>,
    is_closed: bool,
}

/// What the sampler is doing, as far as a thread that stops it must know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The sampler is taking samples.
    Working,
    /// The sampler runs a callback and does not access the session.
    CallingBack,
    /// The session ended during a callback or while the sampler was stuck, so the sampler must not
    /// access it any more.
    Detached,
    /// The sampler has done its last step.
    Ended,
}

/// How a stopped sampler left the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SamplerEnd {
    /// The thread has ended, or is about to.
    Ended,
    /// The thread is in a callback or stuck, and ends afterwards.
    Detached,
}

impl AfterSampling {
    pub(crate) fn new() -> Self {
        let queue = Queue {
            callbacks: VecDeque::new(),
            is_closed: false,
        };
        Self {
            queue: NamedMutex::new("after-sampling callbacks", LockRank::SessionData, queue),
            stage: Mutex::new(Stage::Working),
            stage_changed: Condvar::new(),
            owner: OwnerProcess::current(),
        }
    }

    /// Adds a callback.
    ///
    /// # Errors
    /// Returns the callback if there will be no further loop.
    pub(crate) fn add(&self, callback: AfterSamplingCallback) -> Result<(), AfterSamplingCallback> {
        let mut queue = self.queue.lock();
        if queue.is_closed {
            return Err(callback);
        }
        queue.callbacks.push_back((None, callback));
        Ok(())
    }

    /// Refuses further callbacks, and returns the pending ones.
    pub(crate) fn close(&self) -> UnservedCallbacks {
        let mut queue = self.queue.lock();
        queue.is_closed = true;
        let callbacks = queue
            .callbacks
            .drain(..)
            .map(|(_, callback)| callback)
            .collect();
        UnservedCallbacks {
            owner: self.owner,
            callbacks,
        }
    }

    /// Begins a loop, which becomes the first one for callbacks added since the previous loop
    /// began.
    pub(crate) fn begin_loop(&self, number: u64) {
        let mut queue = self.queue.lock();
        for (first, _) in queue
            .callbacks
            .iter_mut()
            .rev()
            .take_while(|(first, _)| first.is_none())
        {
            *first = Some(number);
        }
    }

    /// Ends a loop, and returns the callbacks to run now, each with its state. The answers to
    /// requests of one loop are in the buffer after the next one, so a callback normally waits for
    /// a second loop.
    pub(crate) fn take_due(
        &self,
        number: u64,
        state: SamplingState,
    ) -> Vec<(AfterSamplingCallback, SamplingState)> {
        let mut queue = self.queue.lock();
        let due_with = |first: Option<u64>| match first {
            Some(first) if first < number => Some(SamplingState::SamplingCompleted),
            Some(_) if state != SamplingState::SamplingCompleted => Some(state),
            _ => None,
        };
        let mut due = Vec::new();
        while let Some(state) = queue
            .callbacks
            .front()
            .and_then(|(first, _)| due_with(*first))
        {
            due.extend(
                queue
                    .callbacks
                    .pop_front()
                    .map(|(_, callback)| (callback, state)),
            );
        }
        due
    }

    /// Runs callbacks on the sampler thread. Returns false if the session ended in the meantime. In
    /// that case the sampler must not access the session.
    pub(crate) fn call_back(&self, due: Vec<(AfterSamplingCallback, SamplingState)>) -> bool {
        if !self.belongs_to_parent() {
            let mut stage = self.lock_stage();
            if *stage == Stage::Working {
                *stage = Stage::CallingBack;
                self.stage_changed.notify_all();
            }
        }
        call_all(self.owner, due.into_iter());
        if self.belongs_to_parent() {
            return false;
        }
        let mut stage = self.lock_stage();
        if *stage == Stage::CallingBack {
            *stage = Stage::Working;
        }
        *stage == Stage::Working
    }

    /// Runs the pending callbacks after the sampler has failed. Called on the sampler thread.
    pub(crate) fn run_unserved(&self) {
        if self.belongs_to_parent() {
            return;
        }
        self.set_stage(Stage::CallingBack);
        drop(self.close());
    }

    /// Returns whether the sampler runs a callback.
    pub(crate) fn is_calling_back(&self) -> bool {
        *self.lock_stage() == Stage::CallingBack
    }

    /// Records that the sampler has done its last step.
    pub(crate) fn set_ended(&self) {
        self.set_stage(Stage::Ended);
    }

    /// Waits until the sampler no longer accesses the session, or until `gives_up` returns true.
    /// Called after the sampler was asked to end. Calls `gives_up` about every
    /// [`CHECK_INTERVAL`], under a lock that the sampler needs to end.
    pub(crate) fn wait_for_end(&self, mut gives_up: impl FnMut() -> bool) -> SamplerEnd {
        let mut stage = self.lock_stage();
        while *stage == Stage::Working {
            let waited = self.stage_changed.wait_timeout(stage, CHECK_INTERVAL);
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

    /// Returns whether the thread that stopped the session gave up waiting, so that the sampler must
    /// not access the session any more.
    pub(crate) fn is_detached(&self) -> bool {
        !self.belongs_to_parent() && *self.lock_stage() == Stage::Detached
    }

    /// Returns whether this process is a child that was forked in a callback. The thread that
    /// forked does not act as a sampler in the child.
    pub(crate) fn belongs_to_parent(&self) -> bool {
        self.owner.is_ancestor()
    }

    fn set_stage(&self, to: Stage) {
        // In the child of a fork, a thread that exists only in the parent may hold the lock for
        // ever.
        if self.belongs_to_parent() {
            return;
        }
        *self.lock_stage() = to;
        self.stage_changed.notify_all();
    }

    fn lock_stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for AfterSampling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AfterSampling")
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn due(after: &AfterSampling, number: u64, state: SamplingState) -> Vec<SamplingState> {
        after
            .take_due(number, state)
            .into_iter()
            .map(|(_, state)| state)
            .collect()
    }

    #[test]
    fn callback_waits_for_a_loop_that_began_after_it() {
        use SamplingState::{NoStackSamplingCompleted, SamplingCompleted, SamplingPaused};
        let after = AfterSampling::new();
        let add = || assert!(after.add(Box::new(|_| {})).is_ok());
        after.begin_loop(1);
        add();
        assert_eq!(
            due(&after, 1, SamplingPaused),
            [],
            "it was added during the loop"
        );
        after.begin_loop(2);
        assert_eq!(
            due(&after, 2, SamplingCompleted),
            [],
            "the answers are not in the buffer yet"
        );
        add();
        after.begin_loop(3);
        assert_eq!(
            due(&after, 3, SamplingPaused),
            [SamplingCompleted, SamplingPaused]
        );
        add();
        after.begin_loop(4);
        assert_eq!(
            due(&after, 4, NoStackSamplingCompleted),
            [NoStackSamplingCompleted]
        );
        drop(after.close());
        assert!(after.add(Box::new(|_| {})).is_err());
    }

    #[test]
    fn sampler_that_a_stop_gave_up_stays_detached_after_callbacks() {
        let after = AfterSampling::new();
        let mut checks = 0;
        let gives_up = || {
            checks += 1;
            checks == 2
        };
        assert!(!after.is_detached());
        assert_eq!(after.wait_for_end(gives_up), SamplerEnd::Detached);
        assert!(after.is_detached());
        let (called, is_called) = std::sync::mpsc::channel();
        let callback: AfterSamplingCallback = Box::new(move |_| called.send(()).expect("alive"));
        let may_go_on = after.call_back(vec![(callback, SamplingState::SamplingCompleted)]);
        assert!(is_called.recv().is_ok() && !may_go_on && after.is_detached());
    }

    #[test]
    fn child_of_a_fork_runs_no_callbacks_and_takes_no_lock() {
        let parent = || OwnerProcess(FORKS.load(Ordering::Acquire).wrapping_sub(1));
        let after = AfterSampling {
            owner: parent(),
            ..AfterSampling::new()
        };
        let stage = after.lock_stage();
        let queue = after.queue.lock();
        let (kept, is_kept) = std::sync::mpsc::channel::<()>();
        let lost: AfterSamplingCallback = Box::new(move |_| _ = kept.send(()));
        assert!(!after.call_back(vec![(lost, SamplingState::SamplingCompleted)]));
        after.run_unserved();
        after.set_ended();
        drop((stage, queue));
        assert_eq!(*after.lock_stage(), Stage::Working);
        let (kept_too, is_kept_too) = std::sync::mpsc::channel::<()>();
        let lost: AfterSamplingCallback = Box::new(move |_| _ = kept_too.send(()));
        drop(UnservedCallbacks {
            owner: parent(),
            callbacks: vec![lost],
        });
        for is_kept in [is_kept, is_kept_too] {
            assert_eq!(
                is_kept.try_recv(),
                Err(std::sync::mpsc::TryRecvError::Empty),
                "the callback is not dropped"
            );
        }
    }

    #[test]
    fn wait_for_end_does_not_wait_for_a_callback() {
        let after = Arc::new(AfterSampling::new());
        let inner = Arc::clone(&after);
        let stops = move |state| {
            assert_eq!(state, SamplingState::SamplingCompleted);
            assert_eq!(inner.wait_for_end(|| false), SamplerEnd::Detached);
        };
        assert!(!after.call_back(vec![(Box::new(stops), SamplingState::SamplingCompleted)]));
        let after = AfterSampling::new();
        assert!(after.call_back(vec![(
            Box::new(|_| panic!("on purpose")),
            SamplingState::SamplingPaused
        )]));
        after.set_ended();
        assert_eq!(after.wait_for_end(|| false), SamplerEnd::Ended);
    }
}
