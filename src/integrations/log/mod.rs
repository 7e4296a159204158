//! Records of the `log` crate as markers.

#[cfg(feature = "log")]
mod log_record;
#[cfg(feature = "log")]
mod logger;

#[cfg(feature = "log")]
pub use logger::ProfilerLogger;
