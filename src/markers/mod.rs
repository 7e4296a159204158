//! Markers: events that the application reports, with their times.
//!
//! # Purpose
//! The options and timing of a marker, payload types with their schemas for the viewer, Gecko's
//! payload types, and the encoding of markers into the buffer and back.
//!
//! # Threads and locks
//! The thread that adds a marker encodes it into that thread's chunk, under no lock. The payload is
//! serialized by the application's code, which may panic. The thread that writes a profile
//! deserializes payloads, again through the application's code.
//!
//! # Imports
//! `base`, `buffer`, `json`, `platform`
//!
//! # Invariants
//! Adding a marker allocates nothing, except for the first marker of a type. A marker without a
//! time gets the time at which it is added. A misbehaving payload damages only itself.
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
