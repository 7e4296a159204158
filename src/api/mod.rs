//! The public functions and guards.
//!
//! # Purpose
//! Implements and documents the public API on top of `session` and `record`, or of `disabled`,
//! which replaces them in builds without the profiler. `lib.rs` and `gecko_profiler.rs` export the
//! items under their public names.
//!
//! # Threads and locks
//! Each item documents the threads that may call it, and its cost. Only
//! `profiler_capture_backtrace` may be called in a signal handler, under the conditions in its
//! documentation.
//!
//! # Imports
//! `allocations`, `backtrace`, `counters`, `disabled`, `event_loop`, `export`, `http`, `labels`,
//! `markers`, `platform`, `pushing`, `record`, `sampler`, `session`, `stream`, `types`, `unwind`,
//! `util`, `waiting_tasks`
//!
//! # Invariants
//! No function panics because of a mistake of the application. A call that does not fit the
//! profiler's state does nothing.
//!
//! # Read next
//! `life_cycle.rs`, `early_start.rs`, `status.rs`, `threads.rs`, `profile.rs`, `counters.rs`,
//! `allocator.rs`, `dump.rs`, `event_delay.rs`, `file_io.rs`, `labels.rs`, `context.rs`,
//! `script_frames.rs`, `markers.rs`, `stacks.rs`.

#![deny(unsafe_code)]

#[expect(unsafe_code, reason = "an allocator is an unsafe trait")]
mod allocator;
mod context;
mod counters;
mod dump;
mod early_start;
mod endpoints;
mod event_delay;
mod file_io;
mod labels;
mod life_cycle;
mod markers;
mod process;
mod profile;
#[cfg(feature = "push")]
mod push;
mod script_frames;
mod stacks;
mod status;
mod threads;
mod waiting_tasks;

pub use allocator::*;
pub use context::*;
pub use counters::*;
pub use dump::*;
pub use early_start::start_early;
pub use endpoints::*;
pub use event_delay::*;
pub use file_io::*;
pub use labels::*;
pub use life_cycle::*;
pub use markers::*;
pub use process::*;
pub use profile::*;
#[cfg(feature = "push")]
pub use push::*;
pub use script_frames::*;
pub use stacks::*;
pub use status::*;
pub use threads::*;
pub use waiting_tasks::TaskWait;
pub(crate) use waiting_tasks::{EnteredWait, records_waits};
#[cfg(has_profiler)]
mod backend;
#[cfg(not(has_profiler))]
use crate::disabled as backend;
pub(crate) use backend::{FloatValues, OwnedCounter, ScaledFloat, may_list_counters};
