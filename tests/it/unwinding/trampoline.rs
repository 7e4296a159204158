//! The trampoline, to which a signal handler returns, has its own name: neither none, nor that of
//! the code before it.

use std::arch::global_asm;
use std::sync::Mutex;

use crate::common::isolated;
use gekkota::stack::{ProfilerBacktrace, StackFeatures, profiler_capture_backtrace};

// The code of a trampoline, with the call frame information that the C library's has: it begins one
// byte before the trampoline, because a return address is looked up there.
global_asm!(
    ".pushsection .text.trampoline, \"ax\", @progbits",
    ".type before_trampoline, @function",
    "before_trampoline:",
    "ret",
    ".cfi_startproc simple",
    ".cfi_signal_frame",
    // The canonical frame address is the interrupted stack pointer; then `rip`, `rbp`, `rbx` and
    // `r12` to `r15`. All are in the context above the stack pointer.
    ".cfi_escape 0x0f, 4, 0x77, 0xa0, 0x01, 0x06",
    ".cfi_escape 0x10, 16, 3, 0x77, 0xa8, 0x01",
    ".cfi_escape 0x10, 6, 3, 0x77, 0xf8, 0x00",
    ".cfi_escape 0x10, 3, 3, 0x77, 0x80, 0x01",
    ".cfi_escape 0x10, 12, 3, 0x77, 0xc8, 0x00",
    ".cfi_escape 0x10, 13, 3, 0x77, 0xd0, 0x00",
    ".cfi_escape 0x10, 14, 3, 0x77, 0xd8, 0x00",
    ".cfi_escape 0x10, 15, 3, 0x77, 0xe0, 0x00",
    "nop",
    ".size before_trampoline, . - before_trampoline",
    ".globl own_trampoline",
    ".type own_trampoline, @function",
    "own_trampoline:",
    "mov rax, 15",
    "syscall",
    ".size own_trampoline, . - own_trampoline",
    ".cfi_endproc",
    ".popsection",
);

// SAFETY: the assembly above defines this symbol. It is never called from here.
unsafe extern "C" {
    fn own_trampoline();
}

/// The kernel's `struct sigaction`.
#[repr(C)]
struct KernelAction {
    handler: usize,
    flags: libc::c_ulong,
    trampoline: usize,
    mask: u64,
}

const SA_RESTORER: libc::c_ulong = 0x0400_0000;

static TAKEN: Mutex<Option<ProfilerBacktrace>> = Mutex::new(None);

extern "C" fn takes_backtrace(_: i32) {
    *TAKEN.lock().expect("no panic") = profiler_capture_backtrace();
}

/// Raises the signal, and returns the names of the handler's stack, innermost first.
#[inline(never)]
fn names_in_handler() -> Vec<String> {
    // SAFETY: accesses no memory of the process.
    assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
    let taken = TAKEN.lock().expect("no panic").take();
    let stack = taken
        .expect("a backtrace")
        .resolve_with(StackFeatures::NATIVE);
    assert!(!stack.is_truncated(), "{stack}");
    stack
        .names()
        .iter()
        .map(|names| names.last().map_or(String::new(), |name| name.name.clone()))
        .collect()
}

/// Returns the names of the frames directly above the handler's.
fn caller_of_handler(names: &[String]) -> &str {
    let handler = names
        .iter()
        .position(|name| name.ends_with("::takes_backtrace"));
    let caller = handler.and_then(|handler| names.get(handler + 1));
    let interrupted = names
        .iter()
        .any(|name| name.ends_with("::names_in_handler"));
    assert!(interrupted, "{names:?}");
    caller.unwrap_or_else(|| panic!("{names:?}"))
}

#[test]
fn trampoline_of_the_c_library_has_a_name() {
    isolated(|| {
        // SAFETY: the handler has this signature.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = takes_backtrace as extern "C" fn(i32) as usize;
            let answer = libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
            assert_eq!(answer, 0);
        }
        let names = names_in_handler();
        let name = caller_of_handler(&names);
        // The second name is that of the symbol, if the C library has symbols.
        assert!(
            ["signal trampoline", "__restore_rt"].contains(&name),
            "{names:?}"
        );
    });
}

#[test]
fn trampoline_with_a_symbol_is_not_named_like_the_code_before_it() {
    isolated(|| {
        let action = KernelAction {
            handler: takes_backtrace as extern "C" fn(i32) as usize,
            flags: SA_RESTORER,
            trampoline: own_trampoline as unsafe extern "C" fn() as usize,
            mask: 0,
        };
        let no_action = std::ptr::null_mut::<KernelAction>();
        // SAFETY: the structure is the kernel's, and the trampoline returns from the signal.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                libc::SIGUSR1,
                &raw const action,
                no_action,
                size_of::<u64>(),
            )
        };
        assert_eq!(answer, 0);
        let names = names_in_handler();
        assert_eq!(caller_of_handler(&names), "own_trampoline", "{names:?}");
    });
}
