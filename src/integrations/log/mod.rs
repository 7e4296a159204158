//! Records of the `log` crate as markers.

mod log_record;
mod logger;

pub use logger::ProfilerLogger;
