//! Callbacks that wait for a loop of the sampler, and what that means for whoever stops it.
//!
//! A callback may take its time and may call anything, also what stops the profiler. So nobody waits for one: while the
//! sampler calls back it touches nothing of the session's, and who stops it then parts with it there and then.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::base::{LockRank, NamedMutex, SamplingState, call_host};

/// What is to be called once.
pub(crate) type AfterSamplingCallback = Box<dyn FnOnce(SamplingState) + Send>;

/// How many forks lie between the first process and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The process that something is of.
#[derive(Clone, Copy, Default, Debug)]
struct OfProcess(u32);

impl OfProcess {
    fn this() -> Self {
        Self(FORKS.load(Ordering::Acquire))
    }

    /// Whether this is a child of that process: its threads are not here, and its locks may be held for ever.
    fn is_parent(self) -> bool {
        FORKS.load(Ordering::Acquire) != self.0
    }
}

/// In the child of a fork: what waits for a loop is the parent's, and so is a sampler that forked in a callback.
pub(crate) fn leave_callbacks_to_parent() {
    FORKS.fetch_add(1, Ordering::AcqRel);
}

/// Calls one after another; if one of them forks, the child calls no more, nor drops what those that are left hold.
fn call_all(
    of: OfProcess,
    mut callbacks: impl Iterator<Item = (AfterSamplingCallback, SamplingState)>,
) {
    while !of.is_parent() {
        let Some((callback, state)) = callbacks.next() else {
            return;
        };
        call_host(|| callback(state));
    }
    std::mem::forget(callbacks);
}

/// Callbacks whose loop will never be. They are told so when this is dropped, which must be under no lock.
#[derive(Default)]
#[must_use = "dropped under no lock"]
pub(crate) struct LeftOverCallbacks {
    of: OfProcess,
    callbacks: Vec<AfterSamplingCallback>,
}

impl Drop for LeftOverCallbacks {
    fn drop(&mut self) {
        let callbacks = std::mem::take(&mut self.callbacks).into_iter();
        call_all(
            self.of,
            callbacks.map(|callback| (callback, SamplingState::JustStopped)),
        );
    }
}

/// A session's callbacks, oldest first, each with the first loop that began after it was added.
pub(crate) struct AfterSampling {
    queue: NamedMutex<Queue>,
    stage: Mutex<Stage>,
    stage_changed: Condvar,
    of: OfProcess,
}

#[derive(Default)]
struct Queue {
    callbacks: VecDeque<(Option<u64>, AfterSamplingCallback)>,
    is_closed: bool,
}

/// What the sampler is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Works,
    /// It is in a callback, and touches nothing of the session's.
    CallsBack,
    /// The session was ended meanwhile: it may not touch anything any more.
    Parted,
    Ended,
}

/// How a sampler that was told to stop has left the session alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SamplerEnd {
    /// Its thread has ended, or is about to.
    Ended,
    /// Its thread is in a callback, and ends after it.
    Parted,
}

impl AfterSampling {
    pub(crate) fn new() -> Self {
        let queue = Queue {
            callbacks: VecDeque::new(),
            is_closed: false,
        };
        Self {
            queue: NamedMutex::new("after-sampling callbacks", LockRank::ThreadData, queue),
            stage: Mutex::new(Stage::Works),
            stage_changed: Condvar::new(),
            of: OfProcess::this(),
        }
    }

    /// Adds a callback.
    ///
    /// # Errors
    /// The callback, when there will be no loop any more.
    pub(crate) fn add(&self, callback: AfterSamplingCallback) -> Result<(), AfterSamplingCallback> {
        let mut queue = self.queue.lock();
        if queue.is_closed {
            return Err(callback);
        }
        queue.callbacks.push_back((None, callback));
        Ok(())
    }

    /// Takes no more, and gives those that are left.
    pub(crate) fn close(&self) -> LeftOverCallbacks {
        let mut queue = self.queue.lock();
        queue.is_closed = true;
        let callbacks = queue
            .callbacks
            .drain(..)
            .map(|(_, callback)| callback)
            .collect();
        LeftOverCallbacks {
            of: self.of,
            callbacks,
        }
    }

    /// A loop begins.
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

    /// A loop has ended so: what is to be called now, and with what. What threads were asked in a loop is in the buffer
    /// after the next one.
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

    /// Calls back, on the sampler thread; false when the session has ended meanwhile, and nothing of it may be touched.
    pub(crate) fn call_back(&self, due: Vec<(AfterSamplingCallback, SamplingState)>) -> bool {
        self.set_stage(Stage::CallsBack);
        call_all(self.of, due.into_iter());
        if self.is_of_parent() {
            return false;
        }
        let mut stage = self.lock_stage();
        if *stage == Stage::CallsBack {
            *stage = Stage::Works;
        }
        *stage == Stage::Works
    }

    /// The sampler has failed: there will be no loop any more. On its thread.
    pub(crate) fn call_left_over(&self) {
        if self.is_of_parent() {
            return;
        }
        self.set_stage(Stage::CallsBack);
        drop(self.close());
    }

    /// Whether the sampler is in a callback.
    pub(crate) fn is_calling_back(&self) -> bool {
        *self.lock_stage() == Stage::CallsBack
    }

    /// The sampler has done its last step.
    pub(crate) fn set_ended(&self) {
        self.set_stage(Stage::Ended);
    }

    /// Waits until a sampler that was told to stop leaves the session alone.
    pub(crate) fn wait_for_end(&self) -> SamplerEnd {
        let is_working = |stage: &mut Stage| *stage == Stage::Works;
        let mut stage = self
            .stage_changed
            .wait_while(self.lock_stage(), is_working)
            .unwrap_or_else(PoisonError::into_inner);
        if *stage == Stage::Ended {
            return SamplerEnd::Ended;
        }
        *stage = Stage::Parted;
        SamplerEnd::Parted
    }

    /// Whether the process forked in a callback, and this is the child. The sampler there is none, though its thread forked.
    pub(crate) fn is_of_parent(&self) -> bool {
        self.of.is_parent()
    }

    fn set_stage(&self, to: Stage) {
        // Another thread may have held the lock while the process forked.
        if self.is_of_parent() {
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
    fn a_callback_waits_for_a_loop_that_began_after_it() {
        use SamplingState::{NoStackSamplingCompleted, SamplingCompleted, SamplingPaused};
        let after = AfterSampling::new();
        let add = || assert!(after.add(Box::new(|_| {})).is_ok());
        after.begin_loop(1);
        add();
        assert_eq!(
            due(&after, 1, SamplingPaused),
            [],
            "it came within the loop"
        );
        after.begin_loop(2);
        assert_eq!(
            due(&after, 2, SamplingCompleted),
            [],
            "the answers are not there yet"
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
    fn in_the_child_of_a_fork_no_more_are_called_and_no_lock_is_taken() {
        let of_parent = || OfProcess(FORKS.load(Ordering::Acquire).wrapping_sub(1));
        let after = AfterSampling {
            of: of_parent(),
            ..AfterSampling::new()
        };
        let stage = after.lock_stage();
        let queue = after.queue.lock();
        let (kept, is_kept) = std::sync::mpsc::channel::<()>();
        let lost: AfterSamplingCallback = Box::new(move |_| _ = kept.send(()));
        assert!(!after.call_back(vec![(lost, SamplingState::SamplingCompleted)]));
        after.call_left_over();
        after.set_ended();
        drop((stage, queue));
        assert_eq!(*after.lock_stage(), Stage::Works);
        let (kept_too, is_kept_too) = std::sync::mpsc::channel::<()>();
        let lost: AfterSamplingCallback = Box::new(move |_| _ = kept_too.send(()));
        drop(LeftOverCallbacks {
            of: of_parent(),
            callbacks: vec![lost],
        });
        for is_kept in [is_kept, is_kept_too] {
            assert_eq!(
                is_kept.try_recv(),
                Err(std::sync::mpsc::TryRecvError::Empty),
                "it is not dropped"
            );
        }
    }

    #[test]
    fn who_stops_does_not_wait_for_a_callback() {
        let after = Arc::new(AfterSampling::new());
        let inner = Arc::clone(&after);
        let stops = move |state| {
            assert_eq!(state, SamplingState::SamplingCompleted);
            assert_eq!(inner.wait_for_end(), SamplerEnd::Parted);
        };
        assert!(!after.call_back(vec![(Box::new(stops), SamplingState::SamplingCompleted)]));
        let after = AfterSampling::new();
        assert!(after.call_back(vec![(
            Box::new(|_| panic!("on purpose")),
            SamplingState::SamplingPaused
        )]));
        after.set_ended();
        assert_eq!(after.wait_for_end(), SamplerEnd::Ended);
    }
}
