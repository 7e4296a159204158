//! From registers and a copied stack to program counters.
//!
//! # Purpose
//! Which modules are loaded, and what a stack's frames are: stop 7 of the way of a sample.
//!
//! # Threads and locks
//! All of it belongs to the sampler thread, while no thread is stopped; it may allocate.
//!
//! # Imports
//! `base`, `platform`
//!
//! # Invariants
//! A stack is called whole only when it ends where call frame information says that there is no caller. Every caller's
//! address lies in a module; one that does not ends the stack as truncated.
//!
//! # Read next
//! `unwinder.rs`, then `crate::sampler`.

mod coverage;
mod module_table;
mod native_stack;
mod unwinder;

pub(crate) use module_table::{LoadedModule, ModuleTable};
pub(crate) use native_stack::{NativeFrame, NativeStack, StackCopy};
pub(crate) use unwinder::Unwinder;
