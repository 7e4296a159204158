//! Integrations with the crates `log`, `metrics` and `tracing`.

#[cfg(feature = "log")]
mod log_markers;
#[cfg(feature = "metrics")]
mod metrics_inner;
#[cfg(all(has_profiler, feature = "metrics"))]
mod metrics_tracks;
#[cfg(all(has_profiler, feature = "tracing"))]
mod tracing_edges;
#[cfg(all(has_profiler, feature = "tracing"))]
mod tracing_futures;
#[cfg(all(has_profiler, feature = "tracing"))]
mod tracing_layer;
