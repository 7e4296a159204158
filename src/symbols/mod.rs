//! Addresses to names, files and lines.
//!
//! # Purpose
//! Names are computed late and once: when a profile is written, for the distinct addresses in it, in their order, so
//! that each module's debug information is opened once.
//!
//! # Threads and locks
//! On the thread that asks for the profile, under no lock of ours; `backtrace` takes its own.
//!
//! # Imports
//! `base`, `unwind`
//!
//! # Invariants
//! An address without a name has none: nothing is guessed. An address of a module that is gone is not looked up, since
//! something else may stand there.
//!
//! # Read next
//! `resolver.rs`, then `crate::stream`.

mod demangle;
mod mapped_symbols;
mod resolver;

pub(crate) use resolver::{AddressNames, CodeAddressService, FrameName, SampledAddress};
