//! Exceptions that are raised, clean up a frame, and are caught, for the stepper. Rust's panics use
//! the same functions of libgcc, but allocate, which stepped code must not do.
//!
//! Before libgcc jumps to a handler, it overwrites the registers and the return address that its own
//! function has saved with those of the handler's frame.

use std::arch::global_asm;
use std::ffi::c_int;

// The catcher calls the cleaner, which calls the thrower. Each frame is found by its frame pointer,
// so a wrong one skips frames. The functions are apart, because the stepper takes a call of the next
// few bytes for no call.
global_asm!(
    ".pushsection .text.exceptions, \"ax\", @progbits",
    ".balign 64",
    ".type catches_exception, @function",
    "catches_exception:",
    ".cfi_startproc",
    ".cfi_personality 0x1b, {catches}",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "call cleans_up",
    // The call never returns: the handler runs next.
    "catches_exception_landing:",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size catches_exception, . - catches_exception",
    ".balign 64",
    ".type cleans_up, @function",
    "cleans_up:",
    ".cfi_startproc",
    ".cfi_personality 0x1b, {cleans}",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push rbx",
    ".cfi_offset rbx, -24",
    "sub rsp, 24",
    "mov rbx, rdi",
    "call throws_exception",
    "cleans_up_landing:",
    "mov rdi, rbx",
    "call _Unwind_Resume@PLT",
    "ud2",
    ".cfi_endproc",
    ".size cleans_up, . - cleans_up",
    ".balign 64",
    ".type throws_exception, @function",
    "throws_exception:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "sub rsp, 32",
    "call _Unwind_RaiseException@PLT",
    "ud2",
    ".cfi_endproc",
    ".size throws_exception, . - throws_exception",
    ".popsection",
    catches = sym catches,
    cleans = sym cleans,
);

/// The head of an exception, as the ABI defines it.
#[repr(C, align(16))]
struct Exception {
    class: u64,
    cleanup: usize,
    private: [u64; 2],
}

/// The unwinder's state for a frame.
#[repr(C)]
struct Context {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn catches_exception(exception: *mut Exception);
    fn catches_exception_landing();
    fn cleans_up_landing();
    fn _Unwind_GetIP(context: *mut Context) -> u64;
    fn _Unwind_SetIP(context: *mut Context, address: u64);
}

const SEARCH: c_int = 1;
const HANDLER_FOUND: c_int = 6;
const INSTALL_CONTEXT: c_int = 7;
const CONTINUE_UNWIND: c_int = 8;

/// Tells the unwinder that the catcher handles the exception, and where.
extern "C" fn catches(
    _: c_int,
    actions: c_int,
    _: u64,
    _: *mut Exception,
    context: *mut Context,
) -> c_int {
    if actions & SEARCH != 0 {
        return HANDLER_FOUND;
    }
    // SAFETY: the unwinder passes a valid context, and the landing expects its frame's registers.
    unsafe { _Unwind_SetIP(context, catches_exception_landing as *const () as u64) };
    INSTALL_CONTEXT
}

/// Tells the unwinder that the cleaner must clean up, unless it has.
extern "C" fn cleans(
    _: c_int,
    actions: c_int,
    _: u64,
    _: *mut Exception,
    context: *mut Context,
) -> c_int {
    let landing = cleans_up_landing as *const () as u64;
    // SAFETY: the unwinder passes a valid context, and the landing expects its frame's registers.
    unsafe {
        if actions & SEARCH != 0 || _Unwind_GetIP(context) > landing {
            return CONTINUE_UNWIND;
        }
        _Unwind_SetIP(context, landing);
    }
    INSTALL_CONTEXT
}

/// Raises an exception, cleans up, and catches it.
#[inline(never)]
pub(crate) fn throw_and_catch() {
    let mut exception = Exception {
        class: u64::from_ne_bytes(*b"gekkota\0"),
        cleanup: 0,
        private: [0; 2],
    };
    // SAFETY: the exception lives until it is caught, which happens before the call returns.
    unsafe { catches_exception(&mut exception) };
}
