//! The slots that threads are captured into.
//!
//! # Purpose
//! The memory into which a thread's signal handler copies registers, stack, labels and time; the
//! same fields filled by the sampler for a thread that sleeps ([`remote_capture`]); and the state
//! of a thread's event loop, which is captured with them.
//!
//! # Threads and locks
//! The target thread fills its slot in its handler; the sampler reads the slot, and fills it for a
//! sleeping thread. `slot_state.rs` lists which thread may make each transition. The slot pool has
//! a lock (of the rank `SessionData`) that no handler takes.
//!
//! # Imports
//! `labels`, `platform`, `types`, `util`
//!
//! # Invariants
//! - A slot's memory is never used for anything else: a late signal still finds a slot, whose state
//!   says that the signal's request is not pending.
//! - The handler writes to a slot only while the slot's state gives it the right to.
//!
//! # Read next
//! `slot_state.rs`, `capture_slot.rs`, `remote_capture.rs`, then `crate::threads`.

#[forbid(unsafe_code)]
mod capture_parts;
mod capture_slot;
mod captured_view;
#[forbid(unsafe_code)]
mod event_delay;
mod found_stack;
mod remote_capture;
#[forbid(unsafe_code)]
mod slot_batch;
#[cfg(all(test, loom))]
mod slot_model;
mod slot_pool;
#[forbid(unsafe_code)]
mod slot_state;

pub(crate) use capture_parts::{CaptureHeader, CaptureParts};
pub(crate) use capture_slot::MAX_STACK_BYTES;
pub(crate) use captured_view::CapturedView;
pub(crate) use event_delay::{EventDelay, EventLoopState};
pub(crate) use found_stack::{CutCopy, FIRST_FOUND_BYTES, FoundStack};
pub(crate) use slot_batch::{SlotBatch, forget_batches_in_child};
pub(crate) use slot_pool::{
    Pool, SlotHandle, find_slot_in_handler, find_slot_of_event_in_handler,
    find_slot_of_thread_in_handler, hold_pool_for_fork,
};
pub(crate) use slot_state::SlotPhase;
