//! The ends of the process: `exit`, the signals that end it, and `abort`.

pub(super) mod exit;
pub(super) mod gate;
pub(super) mod signals;
