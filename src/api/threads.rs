//! Registration and sleep of threads.

use std::marker::PhantomData;

use crate::api::backend;

/// Registers the calling thread under a name.
///
/// A session samples threads that have not registered, too. A registered thread has a name of any
/// length, and its samples are exact from its first instruction on: where its stack lies is known,
/// its labels are recorded also before a session begins, its handler has a stack of its own, and
/// its end has an exact time. Register a thread that runs coroutines on small stacks.
///
/// A thread that has not registered is registered by its first marker or label during a session,
/// under the system's name, which allocates memory. If it then registers itself, it gets the given
/// name. In a profile it is one thread all the time.
///
/// For an empty name, the system's name of the thread is used, or else its id. Registrations nest:
/// a repeated call is counted and changes nothing else. A thread that ends is unregistered
/// automatically. The profiler need not be active.
///
/// If the application has a signal handler that was installed with `SA_ONSTACK`, the profiler may
/// interrupt it on the thread's alternate signal stack. The standard library's 8 KiB may be too
/// little for both: give such a thread a larger one, with [`AutoSignalStack`]. Handlers of faults
/// (`SIGSEGV`, `SIGBUS`, `SIGILL`, `SIGFPE`) that were installed before a session are not
/// interrupted, unless they have the flag `SA_NODEFER`: the start adds the sampling signal to the
/// signals that they block.
///
/// Cost: about 2 µs, to find the stack's bounds and to reserve 184 KiB of address space for copies
/// of the stack. The space grows, up to 1.2 MiB, when a stack of more than 64 KiB is sampled. Idea:
/// Gecko's `profiler_register_thread`.
#[doc(alias = "profiler_register_thread")]
pub fn register_thread(name: &str) {
    backend::register_thread(name);
}

/// Undoes one registration of the calling thread. Undoing the last one ends the registration, and
/// the running session does not sample the thread any more until it registers again. Further calls
/// do nothing.
///
/// A session that begins later samples the thread as one that has not registered, but without
/// labels and markers. To keep a thread out of every session, exclude it by
/// [`filters`](crate::StartParams::filters).
#[doc(alias = "profiler_unregister_thread")]
pub fn unregister_thread() {
    backend::unregister_thread();
}

/// A registration of the calling thread that ends when this guard is dropped.
///
/// ```
/// std::thread::spawn(|| {
///     let _registered = gekkota::ThreadGuard::register("worker");
///     // The thread's work.
/// });
/// ```
#[doc(alias = "AUTO_PROFILER_REGISTER_THREAD")]
#[derive(Debug)]
#[must_use = "the thread is unregistered when this is dropped"]
pub struct ThreadGuard(PhantomData<*const ()>);

impl ThreadGuard {
    /// Registers the calling thread, as [`register_thread`] does.
    pub fn register(name: &str) -> Self {
        register_thread(name);
        Self(PhantomData)
    }
}

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        unregister_thread();
    }
}

/// An alternate signal stack of the calling thread, until this guard is dropped.
///
/// The profiler's handler runs on the thread's alternate signal stack if it has one, and so do
/// handlers of the application that were installed with `SA_ONSTACK`. The standard library gives
/// each of its threads 8 KiB. That is enough for the profiler's handler: with the kernel's frame,
/// which holds the registers, it used 3.8 kB in a release build and 6.2 kB in a debug build, on a
/// processor with AVX-512. It may be too little if the profiler interrupts a handler of the
/// application that itself runs there. A thread with such a handler needs a larger one:
///
/// ```
/// std::thread::spawn(|| {
///     let _signal_stack = gekkota::thread::AutoSignalStack::new(64 << 10)?;
///     let _registered = gekkota::ThreadGuard::register("worker");
///     // The thread's work.
///     std::io::Result::Ok(())
/// });
/// ```
///
/// A thread whose alternate signal stack is missing or too small for the profiler's handler when it
/// registers gets one of 64 KiB until it unregisters, so that signals do not overflow the small
/// stacks of its coroutines.
#[doc(alias = "sigaltstack")]
#[derive(Debug)]
#[must_use = "the stack is replaced when this is dropped"]
pub struct AutoSignalStack {
    _stack: backend::SignalStack,
    not_send: PhantomData<*const ()>,
}

impl AutoSignalStack {
    /// Gives the calling thread an alternate signal stack of at least `bytes` bytes, and of at
    /// least 64 KiB. Memory is used only where handlers touch it. The drop restores the earlier
    /// stack. Cost: four system calls.
    ///
    /// # Errors
    /// The system's error, for example because the caller runs on an alternate signal stack.
    pub fn new(bytes: usize) -> std::io::Result<Self> {
        Ok(Self {
            _stack: backend::SignalStack::install(bytes)?,
            not_send: PhantomData,
        })
    }
}

/// Announces that the calling thread is about to sleep, until it calls [`profiler_thread_wake`].
///
/// After one sample of the sleeping thread, the sampler repeats that sample without checking
/// whether the thread has run. Without an announcement the sampler recognizes a sleeping thread by
/// its CPU clock. CPU time that the thread uses while it is announced as sleeping is charged to its
/// first sample afterwards. A repeated call, or a call on an unregistered thread, has no effect.
///
/// While a session records the thread's markers, the call also adds the end of the thread's `Awake`
/// marker, with the CPU time since the thread woke.
///
/// Cost: two loads and a store, and while a session records the thread, a marker and a reading of
/// the thread's CPU clock. Idea: Gecko's function of the same name.
pub fn profiler_thread_sleep() {
    backend::announce_sleep(true);
}

/// Announces that the calling thread is awake again, and adds the start of its `Awake` marker, with
/// the number of its processor. See [`profiler_thread_sleep`].
pub fn profiler_thread_wake() {
    backend::announce_sleep(false);
}

/// Returns whether the calling thread is announced as sleeping, by [`profiler_thread_sleep`].
pub fn profiler_thread_is_sleeping() -> bool {
    backend::is_announced_asleep()
}

/// Announces the calling thread as sleeping, from construction to drop.
///
/// Put the guard around the call in which an event loop waits:
///
/// ```
/// # let (_sender, events) = std::sync::mpsc::channel::<u32>();
/// # let wait = std::time::Duration::from_millis(1);
/// let event = {
///     let _asleep = gekkota::AutoProfilerThreadSleep::new();
///     events.recv_timeout(wait)
/// };
/// # let _ = event;
/// ```
#[doc(alias = "AUTO_PROFILER_THREAD_SLEEP")]
#[derive(Debug)]
#[must_use = "the thread is announced as awake when this is dropped"]
pub struct AutoProfilerThreadSleep(PhantomData<*const ()>);

impl AutoProfilerThreadSleep {
    /// Calls [`profiler_thread_sleep`].
    #[expect(
        clippy::new_without_default,
        reason = "a guard with side effects is not a default value"
    )]
    pub fn new() -> Self {
        profiler_thread_sleep();
        Self(PhantomData)
    }
}

impl Drop for AutoProfilerThreadSleep {
    fn drop(&mut self) {
        profiler_thread_wake();
    }
}

/// Announces a sleeping thread as awake, from construction to drop: for callbacks of a call in
/// which the thread sleeps.
///
/// Has no effect if the thread was not announced as sleeping.
#[doc(alias = "AUTO_PROFILER_THREAD_WAKE")]
#[derive(Debug)]
#[must_use = "the thread is announced as sleeping again when this is dropped"]
pub struct AutoProfilerThreadWake {
    was_sleeping: bool,
    own_thread: PhantomData<*const ()>,
}

impl AutoProfilerThreadWake {
    /// Calls [`profiler_thread_wake`] if the thread is announced as sleeping.
    #[expect(
        clippy::new_without_default,
        reason = "a guard with side effects is not a default value"
    )]
    pub fn new() -> Self {
        let was_sleeping = profiler_thread_is_sleeping();
        profiler_thread_wake();
        Self {
            was_sleeping,
            own_thread: PhantomData,
        }
    }
}

impl Drop for AutoProfilerThreadWake {
    fn drop(&mut self) {
        if self.was_sleeping {
            profiler_thread_sleep();
        }
    }
}
