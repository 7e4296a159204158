//! Telling the profiler of threads.

use std::marker::PhantomData;

use crate::api::engine;

/// Registers the calling thread, so that it is sampled while the profiler runs.
///
/// An empty name stands for the one that the system has for the thread, or its id. Registering again counts, and changes
/// nothing else. A thread that ends is unregistered by itself. Whether the profiler is active does not matter.
///
/// Cost: about 2 µs, for the stack's bounds and a place to copy it to; address space as large as the
/// stack, and of memory what was used. Idea: Gecko's `profiler_register_thread`.
#[doc(alias = "profiler_register_thread")]
pub fn register_thread(name: &str) {
    engine::register_thread(name);
}

/// Takes one registration of the calling thread back; the last one ends it. More than there were are harmless.
#[doc(alias = "profiler_unregister_thread")]
pub fn unregister_thread() {
    engine::unregister_thread();
}

/// A registration of the calling thread that ends with the guard.
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
    /// Calls [`register_thread`].
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

/// Says that the calling thread is about to sleep, until [`profiler_thread_wake`].
///
/// Once its stack was taken asleep, the sampler does not even look whether it has run: its samples are the same, at no
/// cost. Without it a sleeping thread is noticed by its CPU clock. CPU time that the thread uses while it is said to
/// sleep is charged to its first sample after that. Saying so twice counts once; on a thread that is not registered
/// nothing happens. Cost: two loads and a store. Idea: Gecko's function of the same name.
pub fn profiler_thread_sleep() {
    engine::announce_sleep(true);
}

/// Says that the calling thread is awake again. See [`profiler_thread_sleep`].
pub fn profiler_thread_wake() {
    engine::announce_sleep(false);
}

/// Whether the calling thread has said that it sleeps, by [`profiler_thread_sleep`].
pub fn profiler_thread_is_sleeping() -> bool {
    engine::is_announced_asleep()
}

/// Says that the calling thread sleeps, from the making of this guard to its drop.
///
/// Put it around the one call in which an event loop waits:
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
#[must_use = "the thread is said to be awake when this is dropped"]
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

/// Says that a thread is awake that was said to sleep, from the making of this guard to its drop: for what a sleeping
/// call calls back. It changes nothing where the thread was awake.
#[doc(alias = "AUTO_PROFILER_THREAD_WAKE")]
#[derive(Debug)]
#[must_use = "the thread is said to sleep again when this is dropped"]
pub struct AutoProfilerThreadWake {
    was_sleeping: bool,
    own_thread: PhantomData<*const ()>,
}

impl AutoProfilerThreadWake {
    /// Calls [`profiler_thread_wake`] if the thread was said to sleep.
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
