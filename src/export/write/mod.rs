//! Writers of profiles.

mod gecko;
mod gecko_thread;

pub(crate) use gecko::write_gecko;
