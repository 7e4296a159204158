//! The profiler's own threads.
//!
//! Not by `std::thread`, whose threads take a lock of the standard library's when they begin: in the child of a fork it may
//! be held for ever by a thread that the child does not have, and who joins the new one would wait with it.
//!
//! **Contract** (cited below):
//! - *ours*: the body is boxed here, and unboxed once, by the thread that is made for it;
//! - *once*: a thread is joined or detached once, by the value that stands for it.

use std::ffi::{CStr, c_void};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

type Body = Box<dyn FnOnce() + Send>;

struct Start {
    name: &'static CStr,
    body: Body,
}

/// A thread that was made by [`spawn_profiler_thread`]. It goes on alone when this is dropped.
#[derive(Debug)]
pub(crate) struct ProfilerThread(Option<libc::pthread_t>);

// SAFETY: a `pthread_t` may be joined and detached by any thread of its process.
unsafe impl Send for ProfilerThread {}

extern "C" fn run(start: *mut c_void) -> *mut c_void {
    // SAFETY: *ours*.
    let Start { name, body } = *unsafe { Box::from_raw(start.cast::<Start>()) };
    // SAFETY: a C string of at most 15 bytes and its zero, or it is cut.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    // The host goes on without it; who made it looks for panics in the body.
    let _ = catch_unwind(AssertUnwindSafe(body));
    std::ptr::null_mut()
}

/// Runs `body` on a new thread.
///
/// # Errors
/// The system's refusal to make one.
pub(crate) fn spawn_profiler_thread(
    name: &'static CStr,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<ProfilerThread> {
    let start = Box::into_raw(Box::new(Start {
        name,
        body: Box::new(body),
    }));
    let mut thread: libc::pthread_t = 0;
    // SAFETY: *ours*; the id is a local, and the default attributes are asked for.
    let answer = unsafe { libc::pthread_create(&mut thread, std::ptr::null(), run, start.cast()) };
    if answer != 0 {
        // SAFETY: *ours*: no thread was made for it.
        drop(unsafe { Box::from_raw(start) });
        return Err(io::Error::from_raw_os_error(answer));
    }
    Ok(ProfilerThread(Some(thread)))
}

impl ProfilerThread {
    /// Waits until it has ended.
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
    use crate::platform::current_thread_os_name;

    #[test]
    fn it_runs_under_its_name_and_a_panic_ends_it_alone() {
        let (sender, receiver) = mpsc::channel();
        let tell = sender.clone();
        let named = move || {
            tell.send(current_thread_os_name())
                .expect("it is waited for")
        };
        spawn_profiler_thread(c"SomeThread", named)
            .expect("a thread")
            .join();
        assert_eq!(receiver.recv().expect("a name"), "SomeThread");
        spawn_profiler_thread(c"Panics", || panic!("on purpose"))
            .expect("a thread")
            .join();
        drop(spawn_profiler_thread(c"Alone", move || drop(sender)).expect("a thread"));
        assert!(
            receiver.recv().is_err(),
            "the last sender is gone, so it ran"
        );
    }
}
