//! Taking samples.
//!
//! # Purpose
//! The sampler thread, one tick as named steps: decide, fire, collect, unwind, merge, write; and the signal handler that
//! answers it. Stops 1 to 9 of the way of a sample, less what the rooms below do. And single stacks on demand, by the
//! same protocol and the same handler: `suspend.rs` and `on_demand.rs`.
//!
//! # Threads and locks
//! `handler.rs` runs in the signal handler of a sampled thread and takes no lock. Everything else runs on the sampler
//! thread. That takes each of the profiler's locks, the `PsLock` and the registry's as well as the buffer's, for a moment, but
//! the life cycle's, the script functions' and that of the unwinder on demand; never while it waits for a thread, since it
//! waits for none. It calls after-sampling callbacks between two ticks, under no lock. A stack on demand is waited for by
//! the thread that asked, under no lock; it is unwound there, under the lock of an unwinder that is not the sampler's.
//!
//! # Imports
//! `base`, `buffer`, `counters`, `platform`, `state`, `symbols`, `threads`, `unwind`
//!
//! # Invariants
//! A thread is stopped only while its own handler copies. A thread that does not answer is not signalled again until it has.
//! A thread that has not run since its last sample is not signalled; one that is found asleep is signalled once for a place,
//! where its stack needs the frame pointer. No sample lies within a pause.
//!
//! # Read next
//! `sampler_thread.rs`, `thread_sampler.rs`, `handler.rs`, `merge.rs`, `suspend.rs`, then `crate::stream`.

mod activity;
mod event_probes;
mod fork_gate;
mod handler;
mod marker_stacks;
mod merge;
mod on_demand;
mod paused_thread;
mod rest;
mod sample_writer;
mod sampled_threads;
mod sampler_thread;
mod schedule;
#[cfg(any(test, fuzzing))]
mod scripted_samples;
mod sleeping_places;
mod stack_dictionary;
mod stack_frames;
mod suspend;
mod thread_sampler;
mod thread_samples;
mod tick_context;
mod tick_overheads;
mod timers;
mod waiting;

pub(crate) use fork_gate::{close_fork_gate, open_fork_gate, reopen_fork_gate_in_child};
pub(crate) use handler::capture_in_handler;
pub(crate) use on_demand::{OnDemandUnwinder, SampledStack, hold_unwinder_for_fork};
pub(crate) use sampler_thread::spawn_sampler;
#[cfg(any(test, fuzzing))]
pub(crate) use scripted_samples::{SampleScript, ScriptedFrame, ScriptedSample, ScriptedStack};
pub(crate) use suspend::suspend_and_capture;
