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
//! `buffer`, `json`, `platform`, `types`, `util`
//!
//! # Invariants
//! Adding a marker allocates nothing, except for the first marker of a type. A marker without a
//! time gets the time at which it is added. A misbehaving payload damages only itself.
//!
//! # Read next
//! `options.rs`, `profiler_marker.rs`, `codec/entry.rs`, `codec/payload.rs`, `built_in/`.

#[macro_use]
mod marker_field;
#[macro_use]
mod profiler_marker;
pub mod built_in;
#[cfg(has_profiler)]
mod codec;
mod flow;
mod json_writer;
mod one_line;
mod options;
mod schema;

pub(crate) use crate::types::MarkerPhase;
pub(crate) use built_in::{
    Awake, BorrowedFileIO, CowString, FileIO, FlowStackMarker, Log, StackMarker, Tracing,
};
#[cfg(has_profiler)]
pub(crate) use codec::{
    DecodedMarker, DecodedPayload, DescribedType, MarkerEntry, MarkerType, NewPayload, NoPayload,
    PayloadFailure, PropertyWriter, TextPayload, TypedPayload, set_new_type_hook,
};
pub use flow::FlowId;
pub(crate) use flow::scope_addresses_to_process;
pub use json_writer::JSONWriter;
pub(crate) use json_writer::{PropertySink, PropertyValue};
pub use marker_field::MarkerField;
pub use one_line::{FieldNames, FieldValue, Fields};
pub use options::{MarkerBacktrace, MarkerOptions, MarkerStack, MarkerTiming};
pub(crate) use options::{MarkerDestination, NewMarker};
pub use profiler_marker::ProfilerMarker;
pub(crate) use profiler_marker::serde_as_tuple;
pub use schema::{Format, GraphColor, GraphType, Location, MarkerSchema, PayloadFlags, Searchable};
pub(crate) use schema::{WITH_REQUIRED_FIELDS, data_key, name_for_fields};
