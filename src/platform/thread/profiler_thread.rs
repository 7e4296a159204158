//! Threads of the profiler itself.
//!
//! They are not created by `std::thread`, because its threads take a lock of the standard library
//! when they begin. In the child of a fork, a thread that the child does not have may hold that
//! lock for ever. A new thread would then never begin, and joining it would never return.
//!
//! Nor does a new thread here call [`prepare_to_wait`](crate::util::prepare_to_wait), for which the
//! C library waits for the loader: its creator may be in a library's constructor, hold the loader's
//! lock, and wait for the thread. A thread that no other thread waits for, or whose wait for the
//! loader others can see, calls [`prepare_to_wait_as_loader_call`] itself.
//!
//! [`prepare_to_wait_as_loader_call`]: crate::platform::prepare_to_wait_as_loader_call
//!
//! **Contract** (cited below):
//! - *ours*: the body is boxed here, and unboxed once, by the thread that is created for it or, if
//!   that fails, by the creator;
//! - *once*: a thread is joined or detached once, by the [`ProfilerThread`] that represents it.

use std::ffi::{CStr, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::SigSet;

use crate::platform::identity::{
    current_process_id, is_main_thread, take_normal_policy, with_signals_blocked,
};
use crate::platform::pinned_library::pin_own_library;
use crate::platform::procfs::has_main_thread_ended;
use crate::platform::shared_file::SharedFolder;
use crate::platform::thread::own_threads::{
    BeginningThread, is_own_thread, is_own_thread_beginning, mark_current_thread,
};
use crate::platform::thread::thread_exit::{AtThreadExit, ThreadExitKey};
use crate::types::ThreadId;

type Body = Box<dyn FnOnce() + Send>;

/// Size of the stack of a profiler thread, in bytes. Independent of the application's limits: the
/// default may be 8 MiB, which `mlockall` would take from memory, or 128 KiB, which is too little
/// for reading debug information.
const STACK_BYTES: usize = 2 << 20;

/// Time between two looks at the threads of a process whose main thread has ended.
const TIME_BETWEEN_LOOKS: Duration = Duration::from_millis(100);

struct Start {
    name: &'static CStr,
    body: Body,
    beginning: BeginningThread,
}

/// A thread created by [`spawn_profiler_thread`]. Dropping this value detaches the thread.
#[derive(Debug)]
pub(crate) struct ProfilerThread(Option<libc::pthread_t>);

// SAFETY: a `pthread_t` may be joined and detached by any thread of its process.
unsafe impl Send for ProfilerThread {}

extern "C" fn run(start: *mut c_void) -> *mut c_void {
    mark_current_thread();
    // SAFETY: *ours*.
    let start = *unsafe { Box::from_raw(start.cast::<Start>()) };
    let _own_thread = start.beginning.enter();
    take_normal_policy();
    // The kernel truncates the name to 15 bytes and a terminator.
    let _ = nix::sys::prctl::set_name(start.name);
    // A panic that unwinds ends this thread only. A body whose creator must learn of a panic
    // catches it itself.
    let _ = catch_unwind(AssertUnwindSafe(start.body));
    std::ptr::null_mut()
}

/// Runs `body` on a new thread, on which the signals are blocked that [`with_signals_blocked`]
/// blocks.
///
/// # Errors
/// The error of `pthread_create`.
pub(crate) fn spawn_profiler_thread(
    name: &'static CStr,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<ProfilerThread> {
    if is_main_thread() {
        pin_own_library();
        AT_EXIT.prepare();
        AT_EXIT.call(&MainThread);
    }
    spawn(name, body)
}

/// Called when the main thread ends and the process does not. The C library ends the process with its
/// last thread. But threads of the profiler stay, and block the signals that would end it.
struct MainThread;

static AT_EXIT: ThreadExitKey<MainThread> = ThreadExitKey::new();

impl AtThreadExit for MainThread {
    fn at_thread_exit(&'static self) {
        let mask = SigSet::thread_get_mask();
        let exit_last = move || {
            while !are_only_own_threads_left() {
                std::thread::sleep(TIME_BETWEEN_LOOKS);
            }
            // As on the main thread, so that a signal ends the process although the save is stuck.
            let _ = mask.map(|mask| mask.thread_set_mask());
            std::process::exit(0);
        };
        // Without it, only a signal that cannot be blocked ends the process.
        let _ = spawn(c"ProfilerLast", exit_last);
    }
}

/// Returns whether the process has no threads but the profiler's. False if the system does not tell.
fn are_only_own_threads_left() -> bool {
    let main = current_process_id().to_number();
    let is_own = |id: i32| match id == main {
        true => has_main_thread_ended(),
        false => is_own_thread(ThreadId::from_number(id)),
    };
    let Ok(tasks) = SharedFolder::open(Path::new("/proc/self/task")) else {
        return false;
    };
    let ids = tasks.filter_map(|name| name.to_str()?.parse().ok());
    let ids: Vec<i32> = ids.collect();
    !ids.is_empty() && !is_own_thread_beginning() && ids.into_iter().all(is_own)
}

fn spawn(name: &'static CStr, body: impl FnOnce() + Send + 'static) -> io::Result<ProfilerThread> {
    let start = Box::into_raw(Box::new(Start {
        name,
        body: Box::new(body),
        beginning: BeginningThread::new(),
    }));
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let attributes = attributes.as_mut_ptr();
    // A number in glibc, a pointer in musl.
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: *ours*; the id and the attributes are locals, and the latter are initialized first.
    let answer = with_signals_blocked(|| unsafe {
        libc::pthread_attr_init(attributes);
        libc::pthread_attr_setstacksize(attributes, STACK_BYTES);
        let answer = libc::pthread_create(thread.as_mut_ptr(), attributes, run, start.cast());
        libc::pthread_attr_destroy(attributes);
        answer
    });
    if answer != 0 {
        // SAFETY: *ours*: no thread was created, so the body is still owned here.
        drop(unsafe { Box::from_raw(start) });
        return Err(io::Error::from_raw_os_error(answer));
    }
    // SAFETY: the call has succeeded and set the id.
    Ok(ProfilerThread(Some(unsafe { thread.assume_init() })))
}

impl ProfilerThread {
    /// Waits until the thread has ended.
    pub(crate) fn join(mut self) {
        if let Some(thread) = self.0.take() {
            // SAFETY: *once*.
            unsafe { libc::pthread_join(thread, std::ptr::null_mut()) };
        }
    }
}

impl Drop for ProfilerThread {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // SAFETY: *once*.
            unsafe { libc::pthread_detach(thread) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::platform::procfs::current_thread_os_name;
    use crate::platform::thread::own_threads::is_current_thread_own;

    #[test]
    fn profiler_thread_has_its_name_and_contains_panics() {
        let (sender, receiver) = mpsc::channel();
        let name_sender = sender.clone();
        let named = move || {
            name_sender
                .send((current_thread_os_name(), is_current_thread_own()))
                .expect("the receiver is alive")
        };
        spawn_profiler_thread(c"Named", named)
            .expect("a thread")
            .join();
        assert_eq!(receiver.recv().expect("a name"), ("Named".to_owned(), true));
        assert!(!is_current_thread_own());
        spawn_profiler_thread(c"Panics", || panic!("on purpose"))
            .expect("a thread")
            .join();
        drop(spawn_profiler_thread(c"Detached", move || drop(sender)).expect("a thread"));
        assert!(
            receiver.recv().is_err(),
            "the detached thread ran and dropped the last sender"
        );
    }
}
