//! Progress of a long job: a share of it, the whole for the application to poll, and fractions.

#[cfg(has_profiler)]
#[forbid(unsafe_code)]
mod progress_logger;
#[forbid(unsafe_code)]
mod proportion_value;
#[forbid(unsafe_code)]
mod shared_progress;

#[cfg(has_profiler)]
pub(crate) use progress_logger::ProgressLogger;
pub(crate) use proportion_value::ProportionValue;
pub(crate) use shared_progress::ProgressLocation;
pub use shared_progress::SharedProgress;
