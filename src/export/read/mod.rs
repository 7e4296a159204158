//! Readers of profiles.

mod builder;
mod context;
mod gecko;
mod gecko_stacks;
mod gecko_thread;
mod location;
mod marker_fields;
mod meta;
mod processed;
mod processed_tables;
mod processed_thread;
mod source;
mod table;
mod thread;
mod value;

pub(crate) use source::{add_child, read_profile_file, read_profile_from};

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
