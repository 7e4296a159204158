//! Addresses to names, files and lines.
//!
//! # Purpose
//! Names are computed late and once: when a profile is written, for the distinct addresses in it, in their order, so
//! that each module's debug information is opened once.
//!
//! # Threads and locks
//! On the thread that asks for the profile, under no lock.
//!
//! # Imports
//! `base`, `platform`, `unwind`
//!
//! # Invariants
//! An address without a name has none: nothing is guessed. What is looked up is the file that was loaded, by its build id;
//! without one, only while the module stands at its place.
//!
//! # Read next
//! `resolver.rs`, then `crate::stream`.

mod demangle;
mod mapped_symbols;
mod module_symbols;
mod resolver;

pub(crate) use resolver::{AddressNames, CodeAddressService, FrameName, SampledAddress};
