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
