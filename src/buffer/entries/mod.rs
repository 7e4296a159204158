//! Entries: the unit that a chunk holds, its kinds, and how it is written and read.

mod entry;
mod entry_kind;
pub(crate) mod leb128;
#[cfg(all(test, not(loom)))]
mod round_trip_tests;
#[forbid(unsafe_code)]
mod sample_fields;

pub(crate) use entry::{
    Entry, EntryCursor, EntryHead, EntryReader, EntryWriter, large_bytes, number_bytes,
};
pub(crate) use entry_kind::{EntryKind, FrameTag, ROOT_NODES, root_node};
pub(crate) use leb128::{unzigzag, zigzag};
pub(crate) use sample_fields::{Repeats, SampleFields, TickGap};
