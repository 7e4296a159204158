//! Threads known to the profiler.
//!
//! # Purpose
//! Registration of threads, the registry, and the accessors that control which code may use a
//! thread's data. Label stacks, and the script functions on them. The slot into which a thread's
//! signal handler copies what a sample needs. Backtraces that a thread captures of its own stack.
//! The state of a thread's event loop.
//!
//! # Threads and locks
//! A thread registers itself, owns its label stack, and fills its slot in the signal handler. The
//! sampler reads the slot; it also fills the slot of a blocked thread (`outside_capture.rs`).
//! Registration takes the `PsLock`, then the registry lock for one push or removal. The locks of
//! the slot pool (lock rank: thread data) and of the event watches are held just as briefly. The
//! sampler holds none of these locks while it works. `slot_state.rs` lists the transitions of a
//! slot and the threads that may make them. `registration_data.rs` states for each field which
//! threads write and read it, and under which lock.
//!
//! # Imports
//! `base`, `platform`
//!
//! # Invariants
//! Memory that was made a slot remains a slot for the life of the process: a late signal finds the
//! slot and sees from its state that no request is pending. A label guard holds numbers, not
//! pointers. A thread's data are reached only through the accessors.
//!
//! # Read next
//! `registration_data.rs`, `capture_slot.rs`, `profiling_stack.rs`, `thread_labels.rs`, then
//! `crate::sampler`.

mod backtrace;
mod backtrace_pool;
#[forbid(unsafe_code)]
mod capture;
mod capture_slot;
mod captured_view;
#[forbid(unsafe_code)]
mod event_delay;
#[forbid(unsafe_code)]
mod event_watches;
mod growing_array;
mod outside_capture;
#[forbid(unsafe_code)]
mod own_thread;
mod pending_stacks;
#[forbid(unsafe_code)]
mod probed_loop;
#[forbid(unsafe_code)]
mod profiled_thread_data;
mod profiling_stack;
mod profiling_stack_frame;
#[forbid(unsafe_code)]
mod profiling_word;
#[forbid(unsafe_code)]
mod registration;
#[forbid(unsafe_code)]
mod registration_data;
#[forbid(unsafe_code)]
mod registry;
#[forbid(unsafe_code)]
mod script_functions;
#[cfg(all(test, loom))]
mod slot_model;
mod slot_pool;
#[forbid(unsafe_code)]
mod slot_state;
mod thread_labels;

pub(crate) use backtrace::{BacktraceLabel, BacktraceParts, CapturedBacktrace};
pub(crate) use backtrace_pool::{make_missed_words, prepare_words};
pub(crate) use capture::CaptureParts;
pub(crate) use captured_view::CapturedView;
pub(crate) use event_delay::EventLoopState;
pub(crate) use event_watches::{EventWatches, PostProbe, WatchWork};
pub(crate) use pending_stacks::{
    PendingStack, add_pending_stack, count_lost_stack, forget_lost_stacks, has_pending_stacks,
    lost_stacks, take_pending_stacks,
};
pub(crate) use probed_loop::{ProbeToken, ProbedLoop};
pub(crate) use profiled_thread_data::ProfiledThreadData;
pub(crate) use profiling_stack::LabelToken;
pub(crate) use profiling_stack_frame::{LABELS_LEFT_OUT, ScriptPlace, joined_label_text};
#[cfg(all(test, loom))]
pub(crate) use profiling_word::ProfilingWord;
pub(crate) use registration::{
    MAIN_THREAD_NAME, OffThreadRef, OnThreadRef, RegistrationHooks, register_current_thread,
    unregister, unregister_current_thread,
};
pub(crate) use registry::{RegistryForkGuard, ThreadRegistry};
pub(crate) use script_functions::{
    ScriptFunction, ScriptFunctions, hold_script_functions_for_fork, register_script_function,
    script_function,
};
pub(crate) use slot_pool::{
    NoSlot, SlotHandle, find_slot_in_handler, find_slot_of_thread_in_handler,
};
pub(crate) use slot_state::SlotPhase;
pub(crate) use thread_labels::{
    move_script_frame, pop_labels, push_label, push_label_with_text, push_script_frame,
};
