//! Things that the program says of itself, with a time.
//!
//! # Purpose
//! A marker's options and timing, the types of payloads with their schemas for the viewer, those that Gecko has, and a
//! marker's way into the buffer and out again.
//!
//! # Threads and locks
//! A marker is coded by the thread that adds it, in the chunk that is that thread's, under no lock; its payload by the host's
//! code, which may panic. Payloads are read back, by the host's code as well, by whoever writes a profile.
//!
//! # Imports
//! `base`, `buffer`, `json`, `platform`
//!
//! # Invariants
//! Adding a marker allocates nothing, but the first of a type. A marker without a time gets the moment at which it is added.
//! Whatever a payload does, it spoils no more than itself.
//!
//! # Read next
//! `options.rs`, `profiler_marker.rs`, `encode.rs`, `payload.rs`, `decode.rs`, `built_in.rs`.

#[macro_use]
mod marker_type;

pub mod built_in;
#[cfg(has_profiler)]
mod decode;
#[cfg(has_profiler)]
mod encode;
mod flow;
mod flow_markers;
mod json_writer;
mod marker_field;
#[cfg(has_profiler)]
mod marker_types;
mod options;
#[cfg(has_profiler)]
mod payload;
mod profiler_marker;
#[cfg(has_profiler)]
mod property_writer;
mod schema;
mod schema_words;
mod transfers;

#[cfg(has_profiler)]
pub(crate) use decode::{DecodedMarker, DecodedPayload};
#[cfg(has_profiler)]
pub(crate) use encode::{
    MarkerEntry, MarkerPlace, NewMarker, NewPayload, NoPayload, TextPayload, TypedPayload,
};
pub use flow::FlowId;
pub use json_writer::JSONWriter;
pub use marker_field::MarkerField;
#[cfg(has_profiler)]
pub(crate) use marker_types::{MarkerType, PayloadFailure};
#[cfg(has_profiler)]
pub(crate) use options::MarkerPhase;
pub use options::{MarkerBacktrace, MarkerOptions, MarkerStack, MarkerTiming};
pub use profiler_marker::ProfilerMarker;
#[cfg(has_profiler)]
pub(crate) use property_writer::PropertyWriter;
pub use schema::{MarkerSchema, PayloadFlags, Searchable};
pub use schema_words::{Format, GraphColor, GraphType, Location};
