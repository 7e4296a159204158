//! The application's callbacks: those that wait for a loop of the sampler, with the thread that runs
//! them, and those for changes of the profiling state.
//!
//! A callback that waits for a loop may run for a long time and may call anything, including functions
//! that stop the profiler, open files or fork. The sampler thread may have a descriptor table of its
//! own, so such callbacks run on another thread. The thread that adds the first callback of a session
//! creates it, because a new thread shares the descriptors of its creator. Neither the sampler nor a
//! thread that stops the session waits for a running callback.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::platform::{ProfilerThread, spawn_profiler_thread, with_signals_blocked};
use crate::types::{ProfilingState, ProfilingStates, SamplingState};
use crate::util::{LockRank, NamedMutex, PsCell, PsLock, as_profiler_work, run_callback};

/// A callback that is called once.
pub(crate) type AfterSamplingCallback = Box<dyn FnOnce(SamplingState) + Send>;

/// A callback, and the state to call it with.
type Call = (AfterSamplingCallback, SamplingState);

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

/// Leaves pending callbacks to the parent. Called in the child of a fork.
pub(crate) fn disown_callbacks_in_child() {
    FORKS.fetch_add(1, Ordering::AcqRel);
}

/// Callbacks that the callback thread will not run. Dropping this value calls them; the caller must
/// not hold a lock then.
#[derive(Default)]
#[must_use = "drop the callbacks without holding a lock"]
pub(crate) struct UnservedCallbacks {
    owner: OwnerProcess,
    calls: VecDeque<Call>,
}

impl Drop for UnservedCallbacks {
    /// Runs the callbacks one after the other. If one of them forks, the child neither runs nor
    /// drops the remaining ones.
    fn drop(&mut self) {
        let mut calls = std::mem::take(&mut self.calls).into_iter();
        while !self.owner.is_ancestor() {
            let Some((callback, state)) = calls.next() else {
                return;
            };
            run_callback(|| callback(state));
        }
        std::mem::forget(calls);
    }
}

/// The after-sampling callbacks of a session.
pub(crate) struct AfterSampling {
    queue: NamedMutex<Queue>,
    runner: Arc<CallbackRunner>,
}

#[derive(Default)]
struct Queue {
    /// The callbacks, oldest first, each with the number of the first loop that began after it was
    /// added.
    callbacks: VecDeque<(Option<u64>, AfterSamplingCallback)>,
    is_closed: bool,
}

impl AfterSampling {
    pub(crate) fn new() -> Self {
        let queue = Queue::default();
        Self {
            queue: NamedMutex::new("after-sampling callbacks", LockRank::SessionData, queue),
            runner: Arc::new(CallbackRunner::new()),
        }
    }

    /// Adds a callback. The first one creates the thread that runs them.
    ///
    /// # Errors
    /// Returns the callback if there will be no further loop, or if the system refuses a thread.
    pub(crate) fn add(&self, callback: AfterSamplingCallback) -> Result<(), AfterSamplingCallback> {
        if !CallbackRunner::ensure_thread(&self.runner) {
            return Err(callback);
        }
        let mut queue = self.queue.lock();
        if queue.is_closed {
            return Err(callback);
        }
        queue.callbacks.push_back((None, callback));
        Ok(())
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

    /// Ends a loop, and passes the callbacks that wait for its end to their thread.
    pub(crate) fn end_loop(&self, number: u64, state: SamplingState) {
        let due = self.take_due(number, state);
        if !due.is_empty() {
            self.runner.pass(due);
        }
    }

    /// Returns the callbacks to run now, each with its state. The answers to requests of one loop
    /// are in the buffer after the next one, so a callback normally waits for a second loop.
    fn take_due(&self, number: u64, state: SamplingState) -> Vec<Call> {
        let mut queue = self.queue.lock();
        let due_with = |first: Option<u64>| match first {
            Some(first) if first < number => Some(SamplingState::SamplingCompleted),
            Some(_) if state != SamplingState::SamplingCompleted => Some(state),
            _ => None,
        };
        let mut due = Vec::new();
        while let Some(&(first, _)) = queue.callbacks.front()
            && let Some(state) = due_with(first)
            && let Some((_, callback)) = queue.callbacks.pop_front()
        {
            due.push((callback, state));
        }
        due
    }

    /// Passes the pending callbacks to their thread after the sampler has failed, and refuses
    /// further ones.
    pub(crate) fn fail(&self) {
        let pending = self.take_pending();
        self.runner.pass(pending);
    }

    /// Refuses further callbacks, ends their thread, and returns the callbacks that it has not
    /// begun. Does not wait for a callback that is running; the thread ends after that callback.
    /// Called after the sampler has ended.
    pub(crate) fn close(&self) -> UnservedCallbacks {
        let mut calls = self.runner.end();
        calls.extend(self.take_pending());
        UnservedCallbacks {
            owner: self.runner.owner,
            calls,
        }
    }

    /// Closes the queue, and returns its callbacks.
    fn take_pending(&self) -> Vec<Call> {
        let mut queue = self.queue.lock();
        queue.is_closed = true;
        let callbacks = queue.callbacks.drain(..);
        callbacks
            .map(|(_, callback)| (callback, SamplingState::JustStopped))
            .collect()
    }
}

impl std::fmt::Debug for AfterSampling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AfterSampling").finish_non_exhaustive()
    }
}

/// The thread that runs the callbacks of a session, and the callbacks that wait for it.
struct CallbackRunner {
    /// The standard library's mutex: a thread that waits for `parking_lot`'s condition variable can
    /// hang in the child of a fork (`util/lock/fork_safe.rs`). All threads lock it as the profiler's
    /// own work, so that a signal handler which interrupts them is refused when it calls the
    /// profiler. A callback may have unblocked signals on the callbacks' thread.
    work: Mutex<Work>,
    has_changed: Condvar,
    owner: OwnerProcess,
}

#[derive(Default)]
struct Work {
    due: VecDeque<Call>,
    /// Present from the first callback until the session ends.
    thread: Option<ProfilerThread>,
    is_calling: bool,
    /// Whether the thread ends once it has nothing to do.
    has_ended: bool,
}

impl CallbackRunner {
    fn new() -> Self {
        Self {
            work: Mutex::default(),
            has_changed: Condvar::new(),
            owner: OwnerProcess::current(),
        }
    }

    /// Creates the thread, unless it exists. Returns false if the session has ended, or if the
    /// system refuses.
    fn ensure_thread(this: &Arc<Self>) -> bool {
        this.with_work(|work| {
            if work.has_ended {
                return false;
            }
            if work.thread.is_none() {
                let runner = Arc::clone(this);
                let spawn = || spawn_profiler_thread(c"AfterSampling", move || runner.run());
                work.thread = with_signals_blocked(spawn).ok();
            }
            work.thread.is_some()
        })
    }

    /// Adds callbacks to run.
    fn pass(&self, calls: Vec<Call>) {
        self.with_work(|work| work.due.extend(calls));
        self.has_changed.notify_all();
    }

    /// Runs callbacks until the session ends. If one of them forks, its thread in the child does
    /// nothing more: other threads may hold the lock there for ever.
    fn run(self: Arc<Self>) {
        while let Some((callback, state)) = self.next_call() {
            run_callback(|| callback(state));
            if self.owner.is_ancestor() {
                std::mem::forget(self);
                return;
            }
        }
    }

    /// Waits for the next callback. Returns `None` when the session has ended.
    fn next_call(&self) -> Option<Call> {
        let is_idle = |work: &mut Work| {
            work.is_calling = !work.due.is_empty();
            !work.is_calling && !work.has_ended
        };
        // A callback may have unblocked signals, so a handler may run on this thread, too.
        as_profiler_work(|| {
            let mut work = self
                .has_changed
                .wait_while(self.lock(), is_idle)
                .unwrap_or_else(PoisonError::into_inner);
            work.due.pop_front()
        })
    }

    /// Ends the thread, and returns the callbacks that it has not begun. Waits for the thread,
    /// unless it runs a callback.
    fn end(&self) -> VecDeque<Call> {
        let (unserved, thread) = self.with_work(|work| {
            work.has_ended = true;
            let thread = work.thread.take().filter(|_| !work.is_calling);
            (std::mem::take(&mut work.due), thread)
        });
        self.has_changed.notify_all();
        // While it runs a callback, it is detached instead.
        if let Some(thread) = thread {
            thread.join();
        }
        unserved
    }

    fn with_work<T>(&self, body: impl FnOnce(&mut Work) -> T) -> T {
        as_profiler_work(|| body(&mut self.lock()))
    }

    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A registered callback.
pub(crate) struct StateCallback {
    /// Serial number of the callback in this process, in the order of registration.
    pub(crate) serial: u64,
    states: ProfilingStates,
    id: u64,
    call: Box<dyn Fn(ProfilingState) + Send + Sync>,
    is_removed: AtomicBool,
}

/// The registered callbacks, in the order of registration.
static STATE_CALLBACKS: PsCell<Vec<Arc<StateCallback>>> = PsCell::new(Vec::new());
static LAST_SERIAL: AtomicU64 = AtomicU64::new(0);

impl StateCallback {
    pub(crate) fn add(
        states: ProfilingStates,
        id: u64,
        call: Box<dyn Fn(ProfilingState) + Send + Sync>,
    ) -> Arc<Self> {
        let serial = LAST_SERIAL.fetch_add(1, Ordering::Relaxed) + 1;
        let callback = Arc::new(Self {
            serial,
            states,
            id,
            call,
            is_removed: AtomicBool::new(false),
        });
        STATE_CALLBACKS
            .get_mut(&mut PsLock::acquire())
            .push(Arc::clone(&callback));
        callback
    }

    /// Removes and returns the callbacks with this id. The caller drops them without holding a
    /// lock.
    pub(crate) fn remove(id: u64) -> Vec<Arc<Self>> {
        let mut lock = PsLock::acquire();
        let list = STATE_CALLBACKS.get_mut(&mut lock);
        let removed: Vec<_> = list.extract_if(.., |callback| callback.id == id).collect();
        removed
            .iter()
            .for_each(|callback| callback.is_removed.store(true, Ordering::Release));
        removed
    }

    pub(crate) fn all() -> Vec<Arc<Self>> {
        STATE_CALLBACKS.get(&PsLock::acquire()).clone()
    }

    /// Returns whether to call the callback for `state`. A removed callback is called only for its
    /// own removal.
    pub(crate) fn wants(&self, state: ProfilingState) -> bool {
        let is_removed = self.is_removed.load(Ordering::Acquire);
        self.states.contains(state) && (!is_removed || state == ProfilingState::RemovingCallback)
    }

    pub(crate) fn call(&self, state: ProfilingState) {
        (self.call)(state);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::util::is_any_lock_held_on_current_thread;

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
    fn child_of_a_fork_runs_no_callbacks_and_takes_no_lock() {
        let parent = OwnerProcess(FORKS.load(Ordering::Acquire).wrapping_sub(1));
        let (kept, is_kept) = mpsc::channel::<()>();
        let lost: AfterSamplingCallback = Box::new(move |_| _ = kept.send(()));
        drop(UnservedCallbacks {
            owner: parent,
            calls: [(lost, SamplingState::JustStopped)].into(),
        });
        assert_eq!(
            is_kept.try_recv(),
            Err(mpsc::TryRecvError::Empty),
            "the callback is neither called nor dropped"
        );
        // The thread's copy in the child, which has just run the callback that forked.
        let runner = Arc::new(CallbackRunner {
            owner: parent,
            ..CallbackRunner::new()
        });
        let in_callback = Arc::clone(&runner);
        let forks: AfterSamplingCallback = Box::new(move |_| std::mem::forget(in_callback.lock()));
        runner.pass(vec![(forks, SamplingState::SamplingCompleted)]);
        Arc::clone(&runner).run();
        assert!(runner.work.try_lock().is_err(), "still held, as in a child");
    }

    #[test]
    fn handler_that_interrupts_the_lock_of_the_work_is_refused() {
        let runner = CallbackRunner::new();
        assert!(!is_any_lock_held_on_current_thread());
        // A handler that interrupts the lock would ask this.
        assert!(runner.with_work(|_| is_any_lock_held_on_current_thread()));
        assert!(!is_any_lock_held_on_current_thread());
    }

    #[test]
    fn close_returns_callbacks_that_have_not_begun_and_waits_for_none() {
        use SamplingState::{JustStopped, SamplingCompleted};
        let after = Arc::new(AfterSampling::new());
        let (send, called) = mpsc::channel();
        let inner = Arc::clone(&after);
        let send_inner = send.clone();
        let closes: AfterSamplingCallback = Box::new(move |state| {
            _ = send_inner.send((1, state));
            // Runs the other two on this thread.
            drop(inner.close());
        });
        assert!(after.add(closes).is_ok());
        let send_due = send.clone();
        assert!(
            after
                .add(Box::new(move |state| _ = send_due.send((2, state))))
                .is_ok()
        );
        after.begin_loop(1);
        let due = after.take_due(2, SamplingCompleted);
        assert!(
            after
                .add(Box::new(move |state| _ = send.send((3, state))))
                .is_ok()
        );
        after.runner.pass(due);
        let called: Vec<_> = called.iter().collect();
        assert_eq!(
            called,
            [
                (1, SamplingCompleted),
                (2, SamplingCompleted),
                (3, JustStopped)
            ]
        );
    }

    #[test]
    fn callbacks_continue_after_a_panic() {
        let after = AfterSampling::new();
        let (send, called) = mpsc::channel();
        assert!(after.add(Box::new(|_| panic!("on purpose"))).is_ok());
        assert!(
            after
                .add(Box::new(move |state| _ = send.send(state)))
                .is_ok()
        );
        after.fail();
        assert_eq!(called.recv(), Ok(SamplingState::JustStopped));
        assert!(after.add(Box::new(|_| {})).is_err());
        drop(after.close());
    }
}
