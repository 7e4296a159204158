//! Memory: mappings, guarded reads, code bytes, and the barrier on all threads.

pub(super) mod barrier;
#[forbid(unsafe_code)]
pub(super) mod code_bytes;
pub(super) mod file_mapping;
pub(super) mod guarded_memory;
#[forbid(unsafe_code)]
pub(super) mod limits;
pub(super) mod mapping;
pub(super) mod memory_pipe;
pub(super) mod shared_mapping;
