//! Memory: mappings, guarded reads, code bytes, and the barrier on all threads.

mod barrier;
#[forbid(unsafe_code)]
mod code_bytes;
mod file_mapping;
mod guarded_memory;
mod mapping;

pub(crate) use barrier::heavy_barrier;
pub(crate) use code_bytes::CodeBytes;
pub(crate) use file_mapping::FileMapping;
pub(crate) use guarded_memory::{
    MemoryPiece, bind_guarded_reads, check_sandbox, read_guarded, read_guarded_in_handler,
    read_own_memory,
};
pub(crate) use mapping::LazyRegion;
