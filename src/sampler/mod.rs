//! Takes samples.
//!
//! # Purpose
//! The sampler thread runs one tick as named steps: decide, request, collect, unwind, merge, write.
//! The signal handler answers its requests. Together they perform steps 1 to 9 of a sample's path,
//! except for the parts in lower modules. `suspend.rs` and `stack_sampler.rs` capture single stacks
//! on demand, with the same protocol and the same handler.
//!
//! On a tick, `sampler_thread.rs` follows the modules, the threads and the counters. Then
//! `thread_sampler.rs` decides for each thread: it asks the thread by a signal (`requests.rs`), reads
//! the stack of a blocked one (`blocked.rs`), or collects what the thread has captured of itself
//! (`own_clock.rs`). `sample_recorder.rs` selects what is written, and `encode/` writes it.
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
//! `sampler_thread.rs`, `thread_sampler.rs`, `handler.rs`, `stored_stack.rs`, `suspend.rs`, then
//! `crate::stream`.

mod activity;
mod allocation_stacks;
mod encode;
mod fork_gate;
mod handler;
mod machine_sampler;
mod main_thread_markers;
mod pending_entries;
mod sampler_thread;
mod schedule;
mod session_counters;
mod stack_sampler;
mod suspend;
mod thread_sampler;
mod tick_context;
mod unregistered_threads;

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
pub(crate) use main_thread_markers::write_allocation;
pub(crate) use sampler_thread::spawn_sampler;
pub(crate) use session_counters::less_own_chunks;
pub(crate) use stack_sampler::{IdleUnwinders, SampledStack, hold_unwinders_for_fork};
pub(crate) use suspend::suspend_and_capture;
#[cfg(feature = "unwind_benchmark")]
pub use tick_context::repeat_unwinding;
