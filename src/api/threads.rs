//! Registration and sleep of threads, also of those that a library or `std::thread::Builder` creates.

use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

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
#[doc(alias = "PROFILER_REGISTER_THREAD")]
#[doc(alias = "RegisteredThread")]
#[doc(alias = "ThreadRegistration")]
#[doc(alias = "ThreadRegistrationData")]
#[doc(alias = "ThreadRegistry")]
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

/// Registers the calling thread, unless it is registered.
///
/// For code that may run several times on one thread, such as a task of a pool. For an empty name,
/// the name that the thread was created with is used, or else as for
/// [`register_thread`](crate::register_thread).
///
/// Cost: a check on a registered thread, and on another one that of
/// [`register_thread`](crate::register_thread).
pub fn register_thread_once(name: &str) {
    if backend::is_thread_registered() {
        return;
    }
    if name.is_empty() {
        register_under_own_name();
    } else {
        register_thread(name);
    }
}

/// Registers under the name that the thread was created with. The system keeps only its first 15
/// bytes.
fn register_under_own_name() {
    register_thread(std::thread::current().name().unwrap_or_default());
}

/// Registers the calling thread, which polls a labeled future, if the profiler is active and the
/// thread is not registered. So the worker has the whole name that its runtime gave it, and its
/// labels are recorded even in a session that excludes unregistered threads.
#[doc(hidden)]
#[inline]
pub fn register_polling_thread() {
    if backend::is_active() {
        register_thread_once("");
    }
}

/// Returns a function that registers the thread that calls it, for a pool that runs a function of
/// the application on each of its threads.
///
/// The threads are named `NAME 1`, `NAME 2` and so on, in the order in which they register. For an
/// empty name, each has the name that it was created with. A thread that is registered keeps its
/// name. A thread that ends is unregistered automatically, so no function is needed at its end.
///
/// The threads of a pool are sampled without registration, too, unless the session's parameters
/// exclude them. Registration gives them these names. It also records their labels if the session
/// excludes unregistered threads, or begins while a label is on the stack.
///
/// | Pool | Use |
/// |---|---|
/// | a Tokio runtime | `tokio::runtime::Builder::on_thread_start(start_hook("worker"))` |
/// | `#[tokio::main]`, which has no hook | a [`labeled_future`](crate::labeled_future) for each task |
/// | a pool of rayon | `ThreadPoolBuilder::start_handler(move \|_\| register())` |
/// | rayon's global pool | `rayon::broadcast(\|_\| register())` |
/// | threads of the standard library | [`RegisteredSpawn`] |
///
/// Here `register` is the function that `start_hook` returned.
///
/// ```
/// # /// Like Tokio's builder.
/// # struct Builder(Vec<Box<dyn Fn() + Send + Sync>>);
/// # impl Builder {
/// #     fn new_multi_thread() -> Self { Self(Vec::new()) }
/// #     fn on_thread_start(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
/// #         self.0 = vec![Box::new(hook)];
/// #         self
/// #     }
/// #     fn build(self) { std::thread::spawn(move || self.0[0]()).join().unwrap() }
/// # }
/// # fn set_priority() {}
/// let register = gekkota::thread::start_hook("worker");
/// let runtime = Builder::new_multi_thread()
///     .on_thread_start(move || {
///         register();
///         set_priority(); // Tokio keeps one function, so it also does what the application needs.
///     })
///     .build();
/// ```
///
/// Tokio and rayon keep one such function: a second call replaces the first one. If the application
/// has one, call both from one closure, as above. A Tokio worker that also calls
/// [`profiler_thread_sleep`](crate::profiler_thread_sleep) in `on_thread_park` and
/// [`profiler_thread_wake`](crate::profiler_thread_wake) in `on_thread_unpark` is cheaper to sample
/// while it waits.
///
/// # `#[tokio::main]`
/// This attribute builds the runtime itself, and has no hook. Its workers keep the name that Tokio
/// gives them. Initialize the profiler in the first line of `async fn main`, which runs on the main
/// thread. Wrap each task in a [`labeled_future`](crate::labeled_future): it registers the workers
/// that poll it, under their whole names. A function for `spawn_blocking` may call
/// [`register_thread_once`] first, to the same end:
///
/// ```
/// # mod tokio {
/// #     pub mod task { pub fn spawn_blocking(work: impl FnOnce()) { work() } }
/// #     pub fn spawn(_: impl Future) {}
/// # }
/// # async fn answer() {}
/// # fn compress() {}
/// let category = gekkota::gecko_profiler_category!(Network);
/// tokio::spawn(gekkota::labeled_future("answer", category, answer()));
/// tokio::task::spawn_blocking(|| {
///     gekkota::thread::register_thread_once("");
///     gekkota::auto_profiler_label!("compress");
///     compress();
/// });
/// ```
///
/// # Threads and cost
/// Clones of the function count together. It may be called on any thread, while the profiler is
/// active or not. Cost per thread: that of [`register_thread`](crate::register_thread).
pub fn start_hook(name: impl Into<String>) -> impl Fn() + Clone + Send + Sync + 'static {
    let name: Arc<str> = name.into().into();
    let registered = Arc::new(AtomicUsize::new(0));
    move || {
        if backend::is_thread_registered() {
            return;
        }
        if name.is_empty() {
            register_under_own_name();
        } else {
            let number = registered.fetch_add(1, Ordering::Relaxed) + 1;
            register_thread(&format!("{name} {number}"));
        }
    }
}

/// Adds to [`std::thread::Builder`]: spawns a thread that is registered under its name.
///
/// ```
/// use gekkota::thread::RegisteredSpawn;
///
/// let builder = std::thread::Builder::new().name("decoder of cover images".into());
/// let worker = builder.spawn_registered(|| 6 * 7)?;
/// assert_eq!(worker.join().unwrap(), 42);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// The profile has the whole name, of which the system keeps only the first 15 bytes. A thread
/// without a name is called by its id. The registration ends with the thread's function, before the
/// thread is joined.
pub trait RegisteredSpawn {
    /// Spawns a registered thread, otherwise like [`Builder::spawn`].
    ///
    /// # Errors
    /// Those of [`Builder::spawn`].
    fn spawn_registered<F, T>(self, work: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static;

    /// Spawns a registered thread in a scope, otherwise like [`Builder::spawn_scoped`].
    ///
    /// # Errors
    /// Those of [`Builder::spawn_scoped`].
    fn spawn_scoped_registered<'scope, 'env, F, T>(
        self,
        scope: &'scope Scope<'scope, 'env>,
        work: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope;
}

impl RegisteredSpawn for Builder {
    fn spawn_registered<F, T>(self, work: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.spawn(|| run_registered(work))
    }

    fn spawn_scoped_registered<'scope, 'env, F, T>(
        self,
        scope: &'scope Scope<'scope, 'env>,
        work: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        self.spawn_scoped(scope, || run_registered(work))
    }
}

fn run_registered<T>(work: impl FnOnce() -> T) -> T {
    let _registered = ThreadGuard::register(std::thread::current().name().unwrap_or_default());
    work()
}
