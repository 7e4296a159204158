//! Markers as bytes: encoded when they are added, decoded when a profile is written.

mod compact;
mod described;
mod entry;
mod payload;
mod type_registry;

pub(crate) use described::DescribedType;
pub(crate) use entry::{
    DecodedMarker, DecodedPayload, MarkerEntry, NewPayload, NoPayload, TextPayload, TypedPayload,
};
pub(crate) use payload::{PayloadFailure, PropertyWriter};
pub(crate) use type_registry::{MarkerType, set_new_type_hook};
