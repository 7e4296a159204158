//! The writers, one for each format.

mod processed;

pub(crate) use processed::write_processed;
