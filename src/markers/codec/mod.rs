//! Markers as bytes: encoded when they are added, decoded when a profile is written.

mod compact_error;
mod compact_reader;
mod compact_writer;
mod decode;
mod described;
mod encode;
mod payload;
mod property_writer;
mod type_registry;

pub(crate) use decode::{DecodedMarker, DecodedPayload};
pub(crate) use described::DescribedType;
pub(crate) use encode::{MarkerEntry, NewPayload, NoPayload, TextPayload, TypedPayload};
pub(crate) use payload::PayloadFailure;
pub(crate) use property_writer::PropertyWriter;
pub(crate) use type_registry::{MarkerType, set_new_type_hook};
