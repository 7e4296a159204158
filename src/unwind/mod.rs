//! Unwinds a captured stack: turns registers and copied stack memory into program counters.
//!
//! # Purpose
//! Tracks the loaded modules and the generated code, and finds the frames of a stack: step 7 of 12
//! of a sample.
//!
//! The caller of a frame is found by the first of these sources that covers the frame's address:
//! 1. **Call frame information** of the module, read with `gimli`. The information for an address
//!    is cached as a *rule* of 8 bytes; the cache holds as many addresses as the samples of a large
//!    program have. Rules cannot express DWARF expressions, signal trampolines, and frames based on
//!    registers other than the stack pointer and the frame pointer. These are evaluated for each
//!    sample, with all registers. The caller of a signal trampoline was interrupted and made no
//!    call, so it is looked up at its exact address. So is the name of the trampoline itself, which
//!    the handler returns to but which did not call it.
//!    Call frame information is false in libgcc's functions that raise an exception, just before
//!    they jump to its handler: the registers and the return address that they saved are the
//!    handler's by then. Stacks end there (`has_saved_registers` in `unwinder.rs`).
//! 2. **Generated code**, which the application registers or `/tmp/perf-PID.map` lists. It is
//!    unwound by its frame pointers.
//! 3. **Other code** is unwound only if the frame is proven; see `frame_pointer/`. Otherwise the
//!    stack ends there.
//!
//! framehop guesses where unwind information is missing or unsupported, and does not mark its
//! guesses. It is therefore used only by the tests, for comparison.
//!
//! # Threads and locks
//! The sampler thread owns one unwinder. A thread that requests a stack on demand takes another one
//! for itself, and uses it without a lock. No thread is suspended during unwinding, so it may
//! allocate and read files. Only the registered code ranges are shared between threads, under a
//! lock that is held briefly.
//!
//! # Imports
//! `platform`, `types`, `util`
//!
//! # Invariants
//! - A stack counts as complete only if it ends at a frame that has no caller: according to call
//!   frame information, or because the frame is a start routine of musl
//!   (`function_bounds.rs`).
//! - Every reported frame is exact. An uncertain frame is left out, and the stack is marked as
//!   truncated.
//! - Every caller's address lies in known code.
//! - Code and unwind sections that `dlclose` may unmap are read with the kernel's help or as
//!   copies.
//!
//! # Read next
//! `unwinder.rs`, `rules.rs`, `call_frames.rs`, `frame_pointer/walk.rs`, then
//! `crate::sampler`.

mod call_frames;
mod code_map;
mod code_ranges;
mod frame_pointer;
#[cfg(all(test, target_arch = "x86_64"))]
mod framehop_tests;
mod function_bounds;
mod generated_code;
mod module_table;
mod native_stack;
mod rules;
mod unwinder;

pub(crate) use call_frames::CallFrames;
pub(crate) use code_map::{CodeMap, GeneratedCode};
pub(crate) use code_ranges::{
    CodeRangeToken, CodeRanges, drop_old_unregistered_code, forget_unregistered_code,
    hold_code_ranges_for_fork, keep_unregistered_code, lost_code_names, register_code_range,
    registered_code, set_new_code_hook, unregister_code_range, unregistered_code_bytes,
};
pub(crate) use generated_code::NamedCode;
pub(crate) use module_table::{AddressMeaning, LoadedModule, ModuleTable, module_at};
pub(crate) use native_stack::{Captured, NativeFrame, NativeStack, StackCopy};
pub(crate) use unwinder::{MAX_FRAMES, Unwinder};
