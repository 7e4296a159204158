//! Markers as bytes: encoded when they are added, decoded when a profile is written.

#[cfg(has_profiler)]
mod compact_error;
#[cfg(has_profiler)]
mod compact_reader;
#[cfg(has_profiler)]
mod compact_writer;
#[cfg(has_profiler)]
mod decode;
#[cfg(has_profiler)]
mod described;
#[cfg(has_profiler)]
mod encode;
#[cfg(has_profiler)]
mod payload;
#[cfg(has_profiler)]
mod property_writer;
#[cfg(has_profiler)]
mod type_registry;

#[cfg(has_profiler)]
pub(crate) use decode::{DecodedMarker, DecodedPayload};
#[cfg(has_profiler)]
pub(crate) use described::DescribedType;
#[cfg(has_profiler)]
pub(crate) use encode::{
    MarkerDestination, MarkerEntry, NewMarker, NewPayload, NoPayload, TextPayload, TypedPayload,
};
#[cfg(has_profiler)]
pub(crate) use payload::PayloadFailure;
#[cfg(has_profiler)]
pub(crate) use property_writer::PropertyWriter;
#[cfg(has_profiler)]
pub(crate) use type_registry::{MarkerType, set_new_type_hook};
