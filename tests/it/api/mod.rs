//! The public API, as applications use it.

#[cfg(all(has_profiler, feature = "attributes"))]
mod mozilla_style;
mod surface;
