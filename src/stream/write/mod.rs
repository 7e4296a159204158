//! Gecko JSON: the profile, its threads, markers and metadata.

mod marker_rows;
mod meta;
mod profile;
mod thread_tables;
mod warnings;

pub(crate) use meta::{write_meta, write_pages};
pub(crate) use profile::{FoundProblems, StreamOptions, stream_gecko_json, write_log};
pub(crate) use warnings::warnings_about;
