//! The handler that runs on `exit`.
//!
//! **Contract of the calls** (cited below):
//! - *stays loaded*: the caller has pinned the library that contains this crate.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use once_cell::race::OnceBox;

use crate::platform::pinned_library::pin_own_library;

unsafe extern "C" {
    /// The C library's `atexit`. Without a library's handle, the function runs at `exit` only.
    fn __cxa_atexit(
        function: extern "C" fn(*mut c_void),
        argument: *mut c_void,
        library: *mut c_void,
    ) -> c_int;
}

static HOOK: OnceBox<fn()> = OnceBox::new();

thread_local! {
    /// Without a destructor, so that an exiting thread can use it.
    static HAS_RUN: Cell<bool> = const { Cell::new(false) };
}

extern "C" fn run_hook(_: *mut c_void) {
    if let Some(hook) = HOOK.get()
        && !HAS_RUN.replace(true)
    {
        hook();
    }
}

/// Number of threads that may call `exit` at the same time. Older versions of glibc let each of
/// them run the functions that the others have not begun, and then end the process, while the first
/// one still waits for the profile.
const EXITING_THREADS: usize = 8;

/// Makes `exit`, and so the return from `main`, call `hook` on each thread that exits. Only the
/// first call has an effect. The functions that the application registers later run before it.
pub(crate) fn install_exit_handler(hook: fn()) {
    static IS_INSTALLED: AtomicBool = AtomicBool::new(false);
    let _ = HOOK.set(Box::new(hook));
    if !IS_INSTALLED.swap(true, Ordering::AcqRel) {
        pin_own_library();
        for _ in 0..EXITING_THREADS {
            // SAFETY: *stays loaded*; the function ignores its argument.
            unsafe { __cxa_atexit(run_hook, std::ptr::null_mut(), std::ptr::null_mut()) };
        }
    }
}
