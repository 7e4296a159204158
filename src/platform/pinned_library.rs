//! Keeps the library that contains this crate loaded.
//!
//! An application may unload a library that uses the profiler. Its signal handler, its fork
//! handlers and its threads would then run code that is no longer there.
//!
//! **Contract** (cited below):
//! - *loader's calls*: `dladdr` and `dlopen` may be called at any time outside of signal handlers,
//!   with the address of a function and with a C string that lives as long as the call.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

/// Prevents the dynamic loader from unloading the library that contains this crate, if it is not
/// the executable. Later calls do nothing. Cost of the first: a search in the loader's list.
pub(crate) fn pin_own_library() {
    static IS_PINNED: AtomicBool = AtomicBool::new(false);
    if IS_PINNED.swap(true, Ordering::AcqRel) {
        return;
    }
    let own_code: fn() = pin_own_library;
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: *loader's calls*; the answer is a local, for which zeroed is valid.
    let (answer, info) = unsafe {
        let answer = libc::dladdr(own_code as *const libc::c_void, info.as_mut_ptr());
        (answer, info.assume_init())
    };
    if answer == 0 || info.dli_fname.is_null() || is_executable(info.dli_fbase.addr()) {
        return;
    }
    // The handle is not closed. `RTLD_NOLOAD` makes the call fail for a library of another name.
    let flags = libc::RTLD_LAZY | libc::RTLD_NODELETE | libc::RTLD_NOLOAD;
    // SAFETY: *loader's calls*: the library that contains this code is loaded, with its name.
    unsafe { libc::dlopen(info.dli_fname, flags) };
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
