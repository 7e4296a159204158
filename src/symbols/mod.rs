//! Resolution of addresses to names, files and lines.
//!
//! # Purpose
//! Names are computed late and once: when a profile is written, for its distinct addresses in
//! ascending order, so that the debug information of each module is opened once.
//!
//! # Threads and locks
//! Runs on the thread that requests the profile or the names of a stack, on threads that help it,
//! or on a thread that keeps the files of modules open. Takes no lock, except the lock of the
//! `backtrace` crate (`resolver.rs`).
//!
//! # Imports
//! `platform`, `types`, `unwind`, `util`
//!
//! # Invariants
//! Names are never guessed: an address without a known name stays unnamed. Names come only from the
//! file that was loaded, identified by its build id; a file without a build id is used only while
//! the module is loaded. `backtrace` is asked only for modules that are loaded and unchanged.
//!
//! # Read next
//! `names.rs`, `resolver.rs`, `name_cache.rs`, then `crate::stream`.

mod debug_information;
mod demangle;
mod module_files;
mod module_lookup;
mod name_cache;
mod names;
mod resolver;
mod source_files;
mod symbol_tables;

pub(crate) use module_files::{UnreadFile, is_stripped};
pub(crate) use module_lookup::OpenModules;
pub(crate) use name_cache::{FoundNames, NameCache};
pub(crate) use names::{AddressName, AddressNames, FrameName, SampledAddress};
pub(crate) use resolver::CodeAddressService;
#[cfg(feature = "unwind_benchmark")]
pub use resolver::resolve_addresses;
pub(crate) use source_files::source_paths;
