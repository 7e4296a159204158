//! Takes samples.
//!
//! # Purpose
//! The sampler thread runs one tick as named steps: decide, request, collect, unwind, merge, write.
//! The signal handler answers its requests. Together they perform steps 1 to 9 of a sample's path,
//! except for the parts in lower modules. `suspend.rs` and `stack_sampler.rs` capture single stacks
//! on demand, with the same protocol and the same handler.
//!
//! # Threads and locks
//! `handler.rs` runs in the signal handler of a sampled thread and takes no lock. Everything else
//! runs on the sampler thread, except for stacks on demand, and the fork gate, which the forking
//! thread closes.
//!
//! The sampler thread takes locks only briefly, among them the `PsLock`, the registry's, the
//! buffer's and the dynamic loader's. It never takes the locks of the life cycle, the script
//! functions or the on-demand unwinders. It never waits for a target thread.
//!
//! The sampler thread has its own descriptor table, except in a sandbox, before Linux 5.9, or if
//! the application has a message queue. So it lacks the application's descriptors, and calls no
//! function of the application: another thread runs the after-sampling callbacks. The
//! application's allocator and panic hook may run on it nevertheless.
//!
//! The thread that requests a stack on demand waits for the answer without a lock. It unwinds the
//! stack itself, without a lock and with an unwinder that no other thread uses.
//!
//! # Imports
//! `allocations`, `backtrace`, `buffer`, `capture`, `counters`, `event_loop`, `labels`, `markers`,
//! `platform`, `state`, `symbols`, `threads`, `types`, `unwind`, `util`, `waiting_tasks`
//!
//! # Invariants
//! - A thread is interrupted only while its own handler copies its stack.
//! - The sampler does not signal a thread with a pending request again before it answers, unless the
//!   request appears to be lost.
//! - A thread that has not run since its last sample, according to its CPU clock, is not signaled.
//! - A thread that is found asleep is signaled only if its stack needs a frame pointer that is not
//!   cached.
//! - No sample lies within a pause.
//!
//! # Read next
//! `sampler_thread.rs`, `thread_sampler.rs`, `handler.rs`, `merge.rs`, `suspend.rs`, then
//! `crate::stream`.

mod allocation_markers;
mod allocation_stacks;
mod cpu_speed_markers;
mod encode;
mod fork_gate;
mod handler;
mod main_thread_track;
mod on_demand;
mod sampler_thread;
mod session_counters;
mod thread;
mod tick;
mod unregistered_markers;
mod unregistered_threads;
mod waiting_tasks;

pub(crate) use allocation_markers::write_allocation;
pub(crate) use allocation_stacks::{
    allocation_stack_bytes, forget_allocation_stacks, forget_allocation_stacks_in_child,
    write_allocation_stacks,
};
#[cfg(any(test, fuzzing))]
pub(crate) use encode::{SampleScript, ScriptedFrame, ScriptedSample, ScriptedStack};
pub(crate) use fork_gate::{
    close_fork_gate, close_gate_at_exit, open_fork_gate, reopen_fork_gate_in_child,
};
pub(crate) use handler::capture_in_handler;
pub(crate) use on_demand::{
    IdleUnwinders, SampledStack, hold_unwinders_for_fork, suspend_and_capture,
};
pub(crate) use sampler_thread::spawn_sampler;
pub(crate) use tick::less_own_chunks;
#[cfg(feature = "unwind_benchmark")]
pub use tick::repeat_unwinding;
