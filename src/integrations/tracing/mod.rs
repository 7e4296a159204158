//! Spans and events of the `tracing` crate as labels and markers.

mod callsites;
mod entered_spans;
mod event_marker;
mod field_values;
mod layer;
mod open_spans;
mod span_context;
mod span_flow;
mod span_marker;
mod span_table;
mod span_wait;

pub use layer::ProfilerLayer;
