//! Takes profiles, writes them, and reads those that are left: files, crash files and the profiles of
//! child processes.

pub(crate) mod crash_file;
mod embedded_sources;
pub(crate) mod exit_profile;
pub(crate) mod frozen_profile;
pub(crate) mod read_profile;
pub(crate) mod rescue;
pub(crate) mod save;
pub(crate) mod shutdown_file;
pub(crate) mod snapshot;
