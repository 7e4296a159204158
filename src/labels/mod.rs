//! A thread's labels and script frames.
//!
//! # Purpose
//! The profiling stack that each thread owns: label frames that the application pushes and pops,
//! script frames of its interpreter, and the functions that script frames name. Also the context of
//! the request that a thread works on.
//!
//! # Threads and locks
//! A thread writes only its own stack. Its signal handler reads the stack in place, so pushes and
//! pops are ordered by compiler fences. The registry of script functions and that of context labels
//! have a lock each.
//!
//! # Imports
//! `platform`, `types`, `util`
//!
//! # Invariants
//! - A label guard holds numbers, not pointers, so moving it is safe.
//! - While the stack grows, a handler finds either the old array or the new one, already filled.
//!
//! # Read next
//! `profiling_stack.rs`, `thread_context.rs`, `thread_labels.rs`, then `crate::capture`.

#[forbid(unsafe_code)]
mod context_labels;
mod growing_array;
mod profiling_stack;
mod profiling_stack_frame;
#[forbid(unsafe_code)]
mod script_functions;
#[forbid(unsafe_code)]
mod thread_context;
mod thread_labels;

pub(crate) use context_labels::{
    ContextLabel, ContextLabels, add_context_label, context_label, context_labels_from,
    hold_context_labels_for_fork,
};
pub(crate) use profiling_stack::{
    LabelToken, ProfilingStack, RemoteStack, call_closed_stack_hook, set_closed_stack_hook,
};
pub(crate) use profiling_stack_frame::{ProfilingStackFrame, ScriptLocation, joined_label_text};
pub(crate) use script_functions::{
    ScriptFunction, ScriptFunctions, hold_script_functions_for_fork, register_script_function,
    script_function, script_functions_from,
};
pub(crate) use thread_context::{ContextWords, MAX_CONTEXT_LABELS};
pub(crate) use thread_labels::{
    close_profiling_stack, current_context, open_profiling_stack, own_profiling_stack, pop_labels,
    push_label, push_label_with_text, push_script_frame, replace_context,
    set_script_frame_position,
};
