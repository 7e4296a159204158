//! Coroutines: functions that run on a stack of their own, on the calling thread.

use std::mem::MaybeUninit;

/// Calls `start` on another stack, and returns when it has returned.
///
/// # Safety
/// - `stack` is the lowest address of `bytes` writable bytes. Nothing else uses these bytes during
///   the call.
pub unsafe fn call_on_stack(stack: *mut libc::c_void, bytes: usize, start: extern "C" fn()) {
    let mut here = MaybeUninit::<libc::ucontext_t>::uninit();
    let mut there = MaybeUninit::<libc::ucontext_t>::uninit();
    // SAFETY: by this function's contract. Both contexts outlive the switches. `getcontext`
    // initializes the one that `makecontext` changes, and `swapcontext` the one to return to.
    unsafe {
        assert_eq!(libc::getcontext(there.as_mut_ptr()), 0);
        let context = &mut *there.as_mut_ptr();
        context.uc_stack.ss_sp = stack;
        context.uc_stack.ss_size = bytes;
        context.uc_link = here.as_mut_ptr();
        libc::makecontext(there.as_mut_ptr(), start, 0);
        assert_eq!(libc::swapcontext(here.as_mut_ptr(), there.as_ptr()), 0);
    }
}
