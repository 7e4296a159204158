//! The ends of the process: its exit, the signals that end it, `exec`, and `fork`, after which the
//! child begins without a session.

pub(crate) mod control_state;
pub(crate) mod exec;
pub(crate) mod fork;
pub(crate) mod last_profile;
