//! The context of a request is in each sample of the threads that work on it.

// The reader takes the thread pointer from the registers as x86_64 has them.
#[cfg(all(feature = "otel-context-unstable", target_arch = "x86_64"))]
mod outside;
mod recorded;
mod set;
#[cfg(feature = "tracing")]
mod spans;
#[cfg(feature = "tracing")]
mod waiting_spans;
mod waiting_tasks;
