//! Names for decoded frames, and the tables of each thread.

mod marker_schemas;
mod named_stacks;
mod names;

pub(crate) use marker_schemas::{
    CONTEXT_NAME, MarkerTypes, ONLY_USER_DATA, SAMPLE_CONTEXT, TASK_WAIT, TEXT, WAIT_NAME,
    WAIT_TEXT, name_for_viewer, to_text, type_without_payload, waiting_tasks_tid,
};
pub(crate) use named_stacks::{
    FrameKind, NamedStacks, ResolvedThread, ThreadFrame, ThreadMaps, UNKNOWN_SCRIPT,
    is_own_function,
};
pub(crate) use names::{Locations, ProfileNames, breakpad_id, code_id, library_name, write_libs};
