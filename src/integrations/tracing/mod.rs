//! Spans and events of the `tracing` crate as labels and markers.

#[cfg(feature = "tracing")]
mod callsites;
#[cfg(feature = "tracing")]
mod entered_spans;
#[cfg(feature = "tracing")]
mod event_marker;
#[cfg(feature = "tracing")]
mod field_values;
#[cfg(feature = "tracing")]
mod layer;
#[cfg(feature = "tracing")]
mod open_spans;
#[cfg(feature = "tracing")]
mod span_context;
#[cfg(feature = "tracing")]
mod span_flow;
#[cfg(feature = "tracing")]
mod span_marker;
#[cfg(feature = "tracing")]
mod span_table;
#[cfg(feature = "tracing")]
mod span_wait;

#[cfg(feature = "tracing")]
pub use layer::ProfilerLayer;
