//! Files that profiles are saved to: links, devices and pipes.

mod copying;
mod links;
mod special_file;

pub(crate) use links::follow_links;
pub(crate) use special_file::SpecialFile;
