//! Names for decoded frames, and the tables of each thread.

mod libs;
mod location;
mod marker_schemas;
mod named_stacks;
mod resolved_thread;

pub(crate) use libs::write_libs;
pub(crate) use marker_schemas::{
    KnownType, MarkerTypes, ONLY_USER_DATA, TEXT, type_without_payload,
};
pub(crate) use named_stacks::{FrameKind, NamedStacks};
pub(crate) use resolved_thread::{ResolvedThread, ThreadMaps};
