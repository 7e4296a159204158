//! The limit of processes within processes.

/// Maximum number of levels of processes in the profile of a child process, including the child
/// itself. The profile of its parent has one more level. Each level takes a few nested calls of the
/// caller's stack; a browser has two levels.
pub(crate) const MAX_PROCESS_LEVELS: usize = 16;
