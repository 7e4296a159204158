//! Files that profiles are saved to: links, temporary files, files that are overwritten, and
//! devices and pipes.

mod copying;
mod existing_file;
mod links;
mod special_file;
mod stale_files;
mod temporary_file;
mod temporary_name;

pub(crate) use existing_file::ExistingFile;
pub(crate) use links::follow_links;
pub(crate) use special_file::SpecialFile;
pub(crate) use stale_files::remove_stale_files;
pub(crate) use temporary_file::TemporaryFile;
