//! Resolution of addresses to names, files and lines.
//!
//! # Purpose
//! Names are computed late and once: when a profile is written, for its distinct addresses in
//! ascending order, so that the debug information of each module is opened once.
//!
//! # Threads and locks
//! Runs on the thread that requests the profile or the names of a stack, on threads that help it,
//! or on a thread that keeps the files of modules open. Takes no lock, except the lock of the
//! `backtrace` crate in `fallback.rs`.
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

#[cfg(feature = "unwind_benchmark")]
mod benchmark;
mod debug_information;
mod demangle;
mod fallback;
mod mapped_symbols;
mod mini_debug_info;
mod module_files;
mod module_lookup;
mod module_symbols;
mod name_cache;
mod names;
mod object_file;
#[cfg_attr(
    not(any(feature = "push", test)),
    expect(dead_code, reason = "only a program that pushes keeps modules open")
)]
mod open_modules;
mod plt_names;
mod public_names;
mod resolver;
mod separate_files;
mod source_files;

#[cfg(feature = "unwind_benchmark")]
pub use benchmark::resolve_addresses;
pub(crate) use module_files::{UnreadFile, is_stripped};
pub(crate) use name_cache::{FoundNames, NameCache};
pub(crate) use names::{AddressName, AddressNames, FrameName, SampledAddress};
pub(crate) use open_modules::OpenModules;
pub(crate) use resolver::CodeAddressService;
pub(crate) use source_files::source_paths;
