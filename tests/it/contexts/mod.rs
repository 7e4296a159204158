//! The context of a request is in each sample of the threads that work on it.

mod recorded;
mod set;
#[cfg(feature = "tracing")]
mod spans;
#[cfg(feature = "tracing")]
mod waiting_spans;
mod waiting_tasks;
