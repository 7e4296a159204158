//! Code without call frame information: a start routine of musl is the root of a stack, and code
//! that the application registers late is unwound by its frame pointers from then on.

use std::arch::global_asm;
use std::hint::black_box;
use std::sync::Mutex;

use crate::common::isolated;
use gekkota::jit::profiler_register_code_range;
use gekkota::stack::{ProfilerBacktrace, StackFeatures, StackSample, profiler_capture_backtrace};

global_asm!(
    ".pushsection .text.without_information, \"ax\", @progbits",
    // As in musl: calls its argument, and passes the result on. The second function returns to the
    // caller of the first one, as musl's does not.
    ".type libc_start_main_stage2, @function",
    ".globl own_start_routine",
    "own_start_routine:",
    "libc_start_main_stage2:",
    "push rbx",
    "call rdi",
    "mov edi, eax",
    "call __pthread_exit",
    ".size libc_start_main_stage2, . - libc_start_main_stage2",
    ".type __pthread_exit, @function",
    "__pthread_exit:",
    "add rsp, 8",
    "pop rbx",
    "ret",
    ".size __pthread_exit, . - __pthread_exit",
    // The same code under another name.
    ".globl no_start_routine",
    ".type no_start_routine, @function",
    "no_start_routine:",
    "push rbx",
    "call rdi",
    "mov edi, eax",
    "call __pthread_exit",
    ".size no_start_routine, . - no_start_routine",
    // With a frame pointer. Its caller calls it by a pointer, which proves nothing.
    ".globl late_code",
    ".type late_code, @function",
    "late_code:",
    "push rbp",
    "mov rbp, rsp",
    "call rdi",
    "pop rbp",
    "ret",
    ".size late_code, . - late_code",
    ".globl end_of_late_code",
    "end_of_late_code:",
    ".popsection",
);

type Callback = extern "C" fn() -> i32;

// SAFETY: the assembly above defines these functions, with the C ABI.
unsafe extern "C" {
    fn own_start_routine(call: Callback) -> i32;
    fn no_start_routine(call: Callback) -> i32;
    fn late_code(call: Callback) -> i32;
    fn end_of_late_code();
}

static TAKEN: Mutex<Option<ProfilerBacktrace>> = Mutex::new(None);

extern "C" fn takes_backtrace() -> i32 {
    *TAKEN.lock().expect("no panic") = profiler_capture_backtrace();
    7
}

/// Returns the stack of a callback of the function.
fn stack_in(function: unsafe extern "C" fn(Callback) -> i32) -> StackSample {
    // SAFETY: the functions have the C ABI, and so has the argument.
    assert_eq!(unsafe { black_box(function)(takes_backtrace) }, 7);
    let taken = TAKEN.lock().expect("no panic").take();
    taken
        .expect("a backtrace")
        .resolve_with(StackFeatures::NATIVE)
}

fn oldest_name(stack: &StackSample) -> &str {
    let oldest = stack.names().last().and_then(|names| names.last());
    oldest.map_or("", |name| &name.name)
}

#[test]
fn start_routine_of_musl_is_the_root() {
    isolated(|| {
        let stack = stack_in(own_start_routine);
        assert!(!stack.is_truncated(), "{stack}");
        let name = oldest_name(&stack);
        assert!(
            ["libc_start_main_stage2", "own_start_routine"].contains(&name),
            "{stack}"
        );
        let other = stack_in(no_start_routine);
        assert!(other.is_truncated(), "{other}");
        assert_eq!(oldest_name(&other), "no_start_routine");
    });
}

#[test]
fn code_registered_after_it_was_seen_is_unwound() {
    isolated(|| {
        let before = stack_in(late_code);
        assert!(before.is_truncated(), "{before}");
        assert_eq!(oldest_name(&before), "late_code");
        let start = late_code as *const ();
        let bytes = end_of_late_code as *const () as usize - start as usize;
        let range = profiler_register_code_range(start.cast(), bytes, "registered");
        let after = stack_in(late_code);
        assert!(!after.is_truncated(), "{after}");
        assert!(after.to_string().contains("registered"), "{after}");
        drop(range);
        let unregistered = stack_in(late_code);
        assert!(unregistered.is_truncated(), "{unregistered}");
    });
}
