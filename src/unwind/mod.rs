//! From registers and a copied stack to program counters.
//!
//! # Purpose
//! Which modules are loaded, which code was generated, and what a stack's frames are: stop 7 of the way of a sample.
//!
//! A frame is found by the first of these that speaks of its address:
//! 1. **Call frame information** of its module, read by `gimli`. What it says of an address is kept as a *rule* of 8 bytes,
//!    in a cache that holds as many addresses as a large program's samples have. What no rule can hold (expressions, frames
//!    that hang on other registers, signal trampolines) is evaluated anew each time, over all registers. After a signal
//!    trampoline the next frame was interrupted, not calling, and is looked up at its very address.
//! 2. **Generated code** that the host registered, or that `/tmp/perf-PID.map` lists, is followed by its frame pointers.
//! 3. **Code without either** is followed where a frame is proven: `frame_pointer.rs` says how. Else the stack ends.
//!
//! Not framehop, which guesses where information is missing or says more than it follows, and does not tell a
//! guess from a fact; so it serves the tests alone, to compare with.
//!
//! # Threads and locks
//! An unwinder belongs to the sampler thread, another one to stacks on demand, under a lock; no thread is stopped meanwhile,
//! so it may allocate, and read files. The registered ranges alone are shared, under a lock of their own that is held for a
//! moment.
//!
//! # Imports
//! `base`, `platform`
//!
//! # Invariants
//! A stack is called whole only when it ends where call frame information says that there is no caller. Every frame is
//! exact, or is not there and the stack marked. Every caller's address lies in known code. Code and unwind sections that a
//! `dlclose` may take away are read with the kernel's help, or as copies.
//!
//! # Read next
//! `unwinder.rs`, `rule.rs`, `call_frames.rs`, `frame_pointer.rs`, then `crate::sampler`.

mod call_frames;
mod code_map;
mod code_ranges;
#[cfg(all(test, target_arch = "x86_64"))]
mod comparison;
mod frame_pointer;
mod function_bounds;
mod generated_code;
mod machine_code;
#[cfg_attr(target_arch = "x86_64", path = "machine_code_x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "machine_code_aarch64.rs")]
mod machine_code_arch;
mod module_history;
mod module_table;
mod native_stack;
mod perf_map;
mod register_file;
mod rule;
mod rule_cache;
mod unwinder;

pub(crate) use code_map::CodeMap;
pub(crate) use code_ranges::{
    CodeRangeToken, CodeRanges, forget_unregistered_code, hold_code_ranges_for_fork,
    register_code_range, registered_code, unregister_code_range,
};
pub(crate) use module_history::Meant;
pub(crate) use module_table::{LoadedModule, ModuleTable};
pub(crate) use native_stack::{Captured, NativeFrame, NativeStack, StackCopy};
pub(crate) use unwinder::Unwinder;
