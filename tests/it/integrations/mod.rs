//! Integrations with the crates `log` and `tracing`.

#[cfg(feature = "log")]
mod log_markers;
#[cfg(all(has_profiler, feature = "tracing"))]
mod tracing_edges;
#[cfg(all(has_profiler, feature = "tracing"))]
mod tracing_futures;
#[cfg(all(has_profiler, feature = "tracing"))]
mod tracing_layer;
