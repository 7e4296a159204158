//! Who is running: process and thread ids, and what the sampler's own thread asks of the kernel for itself.

use crate::base::{ProcessId, ThreadId};

/// The process's id. One system call, since a child of `fork` has another one.
pub(crate) fn current_process_id() -> ProcessId {
    // SAFETY: takes and touches no memory.
    ProcessId::from_number(unsafe { libc::getpid() })
}

/// The calling thread's id. One system call.
pub(crate) fn current_thread_id() -> ThreadId {
    // SAFETY: takes and touches no memory.
    ThreadId::from_number(unsafe { libc::gettid() })
}

/// Whether the calling thread is the one that `main` runs on: the kernel gives it the process's id.
pub(crate) fn is_main_thread() -> bool {
    current_thread_id().to_number() == current_process_id().to_number()
}

/// Asks for the finest timer, so that ticks are not bunched by the default slack of 50 µs. A refusal costs accuracy
/// and nothing else.
pub(crate) fn prepare_sampler_thread() {
    // SAFETY: this option takes one number and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

/// Runs `body` with every signal blocked on this thread, so that a thread born in it has them blocked for life and the
/// host's signals never land there.
pub(crate) fn with_signals_blocked<T>(body: impl FnOnce() -> T) -> T {
    struct Restore(libc::sigset_t);
    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: the set was filled in by `pthread_sigmask` and lives on this stack.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
        }
    }
    // SAFETY: both sets are on this stack; a zeroed `sigset_t` is a set, and `sigfillset` fills it.
    let _restore = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        Restore(before)
    };
    body()
}
