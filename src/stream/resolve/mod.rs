//! Names for decoded frames, and the tables of each thread.

mod libs;
mod location;
mod marker_schemas;
mod named_stacks;
mod profile_names;
mod resolved_thread;

pub(crate) use libs::{breakpad_id, code_id, write_libs};
pub(crate) use location::{Locations, library_name};
pub(crate) use marker_schemas::{
    CONTEXT_NAME, MarkerTypes, ONLY_USER_DATA, SAMPLE_CONTEXT, TASK_WAIT, TEXT, WAIT_NAME,
    WAIT_TEXT, name_for_viewer, to_text, type_without_payload, waiting_tasks_tid,
};
pub(crate) use named_stacks::{FrameKind, NamedStacks, UNKNOWN_SCRIPT, is_own_function};
pub(crate) use profile_names::ProfileNames;
pub(crate) use resolved_thread::{ResolvedThread, ThreadFrame, ThreadMaps};
