//! The modules loaded into this process, with their unwind sections and build ids.
//!
//! The loader calls back for each module while it holds its own lock. The callback neither
//! allocates nor calls the loader (tcmalloc #120, tracy #780). It writes rows of a fixed size to a
//! vector with enough capacity (`row.rs`, `list.rs`). Unwind sections are copied on first use,
//! because most libraries of a program never appear on a stack (`image.rs`). The copy is made under
//! the loader's lock, since the library may be unloaded later. The executable and the vDSO are
//! never unloaded, so their sections are used in place. Libraries that the executable needs
//! (`row.rs`) also stay loaded, but their sections are copied.
//!
//! The application may call the profiler from its own callback of `dl_iterate_phdr`, and then holds
//! the loader's lock. So the threads that call the loader here never wait for each other. Only a
//! fork waits for them (`loader_calls.rs`).
//!
//! **Contract of the callbacks** (cited in this folder):
//! - *loader's lock*: while the loader calls back, the module that it passes stays mapped as its
//!   headers say;
//! - *stays*: the executable, the libraries that it needs, and the vDSO are never unmapped.

mod headers;
pub(super) mod image;
pub(super) mod list;
pub(super) mod loader;
mod row;
