//! Hooks that run before `fork`, and after it in the parent and in the child.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use once_cell::race::OnceBox;

use crate::platform::identity::note_process;
use crate::platform::procfs::has_forked;
use crate::platform::signal::control_pipe::forget_control_pipe_in_child;
use crate::util::{LocksInChild, is_forked_child, note_forked_child};

/// Functions to run around a `fork`. All three run on the thread that forks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForkHooks {
    pub(crate) prepare: fn(),
    pub(crate) parent: fn(),
    pub(crate) child: fn(),
}

static HOOKS: OnceBox<ForkHooks> = OnceBox::new();
/// Whether the C library knows the handlers.
static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Number of calls of [`prepare`] for the fork in progress. Two threads that install the
    /// handlers at the same time install them twice.
    static PREPARED: Cell<u32> = const { Cell::new(0) };
}

extern "C" fn prepare() {
    let before = PREPARED.get();
    PREPARED.set(before + 1);
    if before == 0
        && let Some(hooks) = HOOKS.get()
    {
        (hooks.prepare)();
    }
}

/// Returns whether this is the last call of a handler after a fork that was prepared.
fn is_last_after_fork() -> bool {
    let before = PREPARED.get();
    PREPARED.set(before.saturating_sub(1));
    before == 1
}

extern "C" fn parent() {
    if is_last_after_fork()
        && let Some(hooks) = HOOKS.get()
    {
        (hooks.parent)();
    }
}

extern "C" fn child() {
    if !is_last_after_fork() {
        return;
    }
    note_process();
    forget_control_pipe_in_child();
    if let Some(hooks) = HOOKS.get() {
        // SAFETY: *single thread*: a child begins with one thread, and the hooks start none.
        let _locks = unsafe { LocksInChild::begin() };
        (hooks.child)();
    }
}

/// Returns whether this process is the child of a fork, and has executed no program since.
pub(super) fn is_child_of_fork() -> bool {
    // Before the handlers are installed, a fork runs no hook.
    if !is_forked_child() && !IS_INSTALLED.load(Ordering::Acquire) && has_forked() {
        note_forked_child();
    }
    is_forked_child()
}

/// Makes each later fork run the hooks. Only the first call has an effect. `vfork` and
/// `posix_spawn` do not run hooks.
pub(crate) fn install_fork_handlers(hooks: ForkHooks) {
    if IS_INSTALLED.load(Ordering::Acquire) {
        return;
    }
    is_child_of_fork();
    // Fails if another thread is installing the handlers. Its fork or this thread's may come before
    // it has finished, so this thread installs them, too.
    let _ = HOOKS.set(Box::new(hooks));
    // SAFETY: the three functions take no arguments and live as long as the program.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    IS_INSTALLED.store(true, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
    use std::thread::{self, JoinHandle};

    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, Pid, alarm, fork};

    use super::*;
    use crate::platform::current_thread_id;
    use crate::util::{ForkSafe, prepare_to_wait};

    type Mutex = parking_lot::lock_api::Mutex<ForkSafe<parking_lot::RawMutex>, ()>;
    type RwLock = parking_lot::lock_api::RwLock<ForkSafe<parking_lot::RawRwLock>, ()>;

    /// Starts a thread, and returns once that thread sleeps in `wait`.
    fn start_waiting(wait: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        let tid = Arc::new(AtomicI32::new(0));
        let of_thread = Arc::clone(&tid);
        let thread = thread::spawn(move || {
            prepare_to_wait();
            of_thread.store(current_thread_id().to_number(), Ordering::Release);
            wait();
        });
        let sleeps = || {
            let stat = format!("/proc/self/task/{}/stat", tid.load(Ordering::Acquire));
            let stat = std::fs::read_to_string(stat).unwrap_or_default();
            stat.rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.starts_with('S'))
        };
        while !sleeps() {
            thread::yield_now();
        }
        thread
    }

    /// Runs `body` in a forked child, and drops it in this process. The child exits with 0 if
    /// `body` returns true, and does not return to the test harness. An alarm ends a child that
    /// hangs.
    fn start_child(body: impl FnOnce() -> bool) -> Pid {
        // SAFETY: the C library allows its allocator and its threads in the child.
        match unsafe { fork() }.expect("a child") {
            ForkResult::Parent { child } => child,
            ForkResult::Child => {
                alarm::set(60);
                let result = catch_unwind(AssertUnwindSafe(body));
                // SAFETY: ends the process.
                unsafe { libc::_exit(i32::from(!matches!(result, Ok(true)))) }
            }
        }
    }

    /// Waits for the child, and returns whether its body returned true.
    fn is_well(child: Pid) -> bool {
        waitpid(child, None) == Ok(WaitStatus::Exited(child, 0))
    }

    /// Forks while this thread holds a lock that two threads wait for. In the child, this thread
    /// releases it as a fork hook does, and two threads take it in turn.
    fn assert_usable_in_child<G>(take: impl Fn() -> G + Copy + Send + 'static) {
        let held = take();
        let waiting = [(); 2].map(|()| start_waiting(move || drop(take())));
        let child = start_child(move || {
            // SAFETY: *single thread*: the child has started no thread yet.
            let in_child = unsafe { LocksInChild::begin() };
            drop(held);
            drop(in_child);
            let held = take();
            let other = start_waiting(move || drop(take()));
            drop(held);
            other.join().is_ok()
        });
        for thread in waiting {
            thread.join().expect("it gets the lock");
        }
        assert!(is_well(child));
    }

    static MUTEXES: [Mutex; 2] = [const { Mutex::new(()) }; 2];
    static RW_LOCK: RwLock = RwLock::new(());

    /// Takes one of the locks.
    fn take_and_release(number: usize) {
        match MUTEXES.get(number) {
            Some(mutex) => drop(mutex.lock()),
            None => drop(RW_LOCK.write()),
        }
    }

    /// Forks `forks` times while this thread holds the locks, and three others begin to wait for
    /// one of them each. In the child, this thread releases the locks as the fork hooks do, and two
    /// threads contend for them.
    fn fork_beside_contended_locks(forks: u32) {
        let ends = AtomicBool::new(false);
        let all_well = thread::scope(|scope| {
            let ends = &ends;
            for number in 0..3 {
                scope.spawn(move || {
                    prepare_to_wait();
                    while !ends.load(Ordering::Relaxed) {
                        take_and_release(number);
                        // So the forking thread soon gets a processor.
                        thread::yield_now();
                    }
                });
            }
            let all_well = (0..forks).all(|_| {
                let held = (MUTEXES[0].lock(), MUTEXES[1].lock(), RW_LOCK.write());
                let child = start_child(move || {
                    // SAFETY: *single thread*: the child has started no thread yet.
                    let in_child = unsafe { LocksInChild::begin() };
                    drop(held);
                    drop(in_child);
                    let take_often = || (0..6).for_each(|step| take_and_release(step % 3));
                    let other = thread::spawn(take_often);
                    take_often();
                    other.join().is_ok()
                });
                is_well(child)
            });
            ends.store(true, Ordering::Relaxed);
            all_well
        });
        assert!(all_well, "a child hangs or fails");
    }

    #[test]
    fn contended_locks_are_usable_in_forked_children() {
        fork_beside_contended_locks(300);
    }

    #[test]
    #[ignore = "takes a minute; `cargo test --lib 100_000 -- --ignored` runs it"]
    fn contended_locks_are_usable_in_100_000_forked_children() {
        fork_beside_contended_locks(100_000);
    }

    /// Installs the handlers in a child, so that they stay out of the process of the other tests.
    #[test]
    fn hooks_run_once_even_if_the_handlers_are_installed_twice() {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        fn prepare_once() {
            CALLS.fetch_add(1, Ordering::Relaxed);
        }
        fn parent_once() {
            CALLS.fetch_add(16, Ordering::Relaxed);
        }
        fn child_once() {
            CALLS.fetch_add(256, Ordering::Relaxed);
        }
        let hooks = ForkHooks {
            prepare: prepare_once,
            parent: parent_once,
            child: child_once,
        };
        let child = start_child(move || {
            install_fork_handlers(hooks);
            IS_INSTALLED.store(false, Ordering::Relaxed);
            install_fork_handlers(hooks);
            let child = start_child(|| CALLS.load(Ordering::Relaxed) == 257);
            is_well(child) && CALLS.load(Ordering::Relaxed) == 17
        });
        assert!(is_well(child));
    }

    #[test]
    fn mutex_with_waiting_threads_is_usable_in_a_forked_child() {
        static MUTEX: Mutex = Mutex::new(());
        assert_usable_in_child(|| MUTEX.lock());
    }

    #[test]
    fn rw_lock_with_waiting_threads_is_usable_in_a_forked_child() {
        static LOCK: RwLock = RwLock::new(());
        assert_usable_in_child(|| LOCK.write());
    }
}
