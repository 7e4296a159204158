//! Types that describe themselves, so that a program without them can print their payloads: the
//! rescuer of another process's data.

mod describe;
mod recipe;
mod shape;
mod tracer;

use crate::buffer::EntryReader;
use crate::markers::codec::described::recipe::{Line, decode_recipe, print_recipe};
use crate::markers::codec::described::shape::Shape;
use crate::markers::codec::payload::PayloadFailure;
use crate::markers::json_writer::JSONWriter;

pub(crate) use describe::describe;

/// A type of markers of another process, as that process has described it. This program need not
/// have it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct DescribedType {
    /// The type's name in the profile.
    pub(crate) name: String,
    /// The schema, as an element of `meta.markerSchema`; empty if the viewer has one.
    pub(crate) schema: String,
    shape: Shape,
    recipe: Vec<Line>,
}

impl DescribedType {
    /// Creates the type from its encoded description; `None` if that is damaged.
    pub(crate) fn decode(name: String, schema: String, payload: &[u8]) -> Option<Self> {
        let from = &mut EntryReader::new(payload);
        Some(Self {
            name,
            schema,
            shape: Shape::decode(from)?,
            recipe: decode_recipe(from)?,
        })
    }

    /// Writes the fields of a payload.
    pub(crate) fn stream(
        &self,
        payload: &[u8],
        json: &mut JSONWriter<'_>,
    ) -> Result<(), PayloadFailure> {
        let value = self.shape.decode_payload(payload);
        value
            .and_then(|value| print_recipe(&self.recipe, &value, payload.len(), json.sink()))
            .map_err(|_| PayloadFailure::NotDeserialized)
    }
}
