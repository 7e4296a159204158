//! Spans and events of the `tracing` crate as labels and markers.

mod entered_spans;
mod field_values;
mod layer;
mod markers;
mod open_spans;
mod span_context;

pub use layer::ProfilerLayer;
