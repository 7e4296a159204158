//! Memory: mappings, guarded reads, code bytes, and the barrier on all threads.

mod barrier;
#[forbid(unsafe_code)]
mod code_bytes;
mod file_mapping;
mod guarded_memory;
#[forbid(unsafe_code)]
mod limits;
mod mapping;
mod memory_pipe;
mod shared_mapping;

pub(crate) use barrier::{
    heavy_barrier, prepare_heavy_barrier, prepare_heavy_barrier_without_waiting,
};
pub(crate) use code_bytes::CodeBytes;
pub(crate) use file_mapping::FileMapping;
pub(crate) use guarded_memory::{
    bind_guarded_reads, read_guarded, read_guarded_in_handler, read_own_memory, read_through_pipe,
};
pub(crate) use limits::{
    is_memory_available, limits_leave, look_at_memory_limits, was_memory_available,
};
pub(crate) use mapping::{LazyRegion, is_mappable};
pub(crate) use memory_pipe::MemoryPiece;
pub(crate) use shared_mapping::{map_memory_file, map_new_file};
