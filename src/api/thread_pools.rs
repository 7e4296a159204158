//! Registration of threads that a library or `std::thread::Builder` creates.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

use crate::api::backend;
use crate::api::threads::{ThreadGuard, register_thread};

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
