//! How the viewer shows a marker type: schemas and their keywords.

mod marker_schema;
mod schema_keywords;
mod viewer_types;

pub use crate::types::GraphColor;
pub(crate) use marker_schema::data_key;
pub use marker_schema::{MarkerSchema, PayloadFlags, Searchable};
pub use schema_keywords::{Format, GraphType, Location};
pub(crate) use viewer_types::{WITH_REQUIRED_FIELDS, name_for_fields};
