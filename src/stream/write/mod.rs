//! Gecko JSON: the profile, its threads, markers and metadata.

mod losses;
mod marker_rows;
mod meta;
mod options;
mod pages;
mod profile;
mod program_info;
mod thread_tables;
mod warnings;

pub(crate) use meta::write_meta;
pub(crate) use options::StreamOptions;
pub(crate) use pages::write_pages;
pub(crate) use profile::{FoundProblems, stream_gecko_json, write_log};
pub(crate) use warnings::warnings_about;
