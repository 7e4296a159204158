//! Keeps the library that contains this crate loaded.
//!
//! An application may unload a library that uses the profiler. Its signal handler, its fork
//! handlers and its threads would then run code that is no longer there.
//!
//! **Contract** (cited below):
//! - *loader's calls*: `dladdr` and `dlopen` may be called at any time outside of signal handlers,
//!   with any address and with a C string that lives as long as the call.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

/// Prevents the dynamic loader from unloading the library that contains this crate, if it is not
/// the executable. Calls after the first success do nothing. Cost before: a search in the loader's
/// list.
pub(crate) fn pin_own_library() {
    static IS_PINNED: AtomicBool = AtomicBool::new(false);
    let own_code: fn() = pin_own_library;
    pin_once(&IS_PINNED, || {
        pin_library_of(own_code as *const libc::c_void)
    });
}

/// Calls `pin` unless an earlier call succeeded. Two threads may call it at a time: neither may go
/// on before its library is pinned.
fn pin_once(is_pinned: &AtomicBool, pin: impl FnOnce() -> bool) {
    if !is_pinned.load(Ordering::Acquire) && pin() {
        is_pinned.store(true, Ordering::Release);
    }
}

/// Pins the library that contains `code`. Returns false if the loader does not know it.
fn pin_library_of(code: *const libc::c_void) -> bool {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: *loader's calls*; the answer is a local, for which zeroed is valid.
    let (answer, info) = unsafe {
        let answer = libc::dladdr(code, info.as_mut_ptr());
        (answer, info.assume_init())
    };
    if answer == 0 || info.dli_fname.is_null() {
        return false;
    }
    if is_executable(info.dli_fbase.addr()) {
        return true;
    }
    // The handle is not closed. `RTLD_NOLOAD` makes the call fail for a library of another name.
    let flags = libc::RTLD_LAZY | libc::RTLD_NODELETE | libc::RTLD_NOLOAD;
    // SAFETY: *loader's calls*: the library that contains this code is loaded, with its name.
    let handle = unsafe { libc::dlopen(info.dli_fname, flags) };
    !handle.is_null()
}

/// Returns whether the module that is loaded at this address is the executable. The kernel passes
/// the address of the executable's program headers, which lie in its first page.
fn is_executable(base: usize) -> bool {
    const PAGE: usize = 4096;
    // SAFETY: reads the auxiliary vector.
    let headers = unsafe { libc::getauxval(libc::AT_PHDR) } as usize;
    (base..base + PAGE).contains(&headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pin_that_failed_is_repeated_until_it_succeeds() {
        let (is_pinned, mut calls) = (AtomicBool::new(false), 0);
        for succeeds in [false, true, true] {
            pin_once(&is_pinned, || {
                assert!(!is_pinned.load(Ordering::Relaxed), "pinned before the pin");
                calls += 1;
                succeeds
            });
        }
        assert_eq!(calls, 2);
        assert!(
            !pin_library_of((&raw const calls).cast()),
            "the stack is no library"
        );
        let in_libc: unsafe extern "C" fn() -> libc::pid_t = libc::getpid;
        assert!(pin_library_of(in_libc as *const libc::c_void));
    }

    #[test]
    fn executable_is_recognized_by_its_base() {
        let own_code: fn() = executable_is_recognized_by_its_base;
        let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: *loader's calls*.
        let info = unsafe {
            assert_ne!(libc::dladdr(own_code as *const _, info.as_mut_ptr()), 0);
            info.assume_init()
        };
        assert!(is_executable(info.dli_fbase.addr()));
        let in_libc: unsafe extern "C" fn() -> libc::pid_t = libc::getpid;
        let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: *loader's calls*.
        let info = unsafe {
            assert_ne!(libc::dladdr(in_libc as *const _, info.as_mut_ptr()), 0);
            info.assume_init()
        };
        assert!(!is_executable(info.dli_fbase.addr()));
    }
}
