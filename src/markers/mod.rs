//! Things that the program says of itself, with a time.
//!
//! # Purpose
//! A marker's options and timing, its schema for the viewer, and its way into the buffer and out again.
//!
//! # Threads and locks
//! A marker is coded by the thread that adds it, in the chunk that is that thread's, under no lock.
//!
//! # Imports
//! `base`, `buffer`, `json`
//!
//! # Invariants
//! Adding a marker allocates nothing. A marker without a time gets the moment at which it is added.
//!
//! # Read next
//! `options.rs`, `encode.rs`, `decode.rs`.

#[cfg(has_profiler)]
mod decode;
#[cfg(has_profiler)]
mod encode;
mod options;
#[cfg(has_profiler)]
mod schema;

#[cfg(has_profiler)]
pub(crate) use decode::{DecodedMarker, MarkerPayload};
#[cfg(has_profiler)]
pub(crate) use encode::{NewMarker, put_marker};
#[cfg(has_profiler)]
pub(crate) use options::MarkerPhase;
pub use options::{MarkerOptions, MarkerTiming};
#[cfg(has_profiler)]
pub(crate) use schema::write_text_schema;
