//! Starts and stops sessions, by calls, variables and signals, from `profiler_init` to
//! `profiler_shutdown`.

pub(crate) mod clients;
pub(crate) mod event_loops;
pub(crate) mod init;
pub(crate) mod process;
pub(crate) mod registration;
pub(crate) mod signals;
pub(crate) mod start_stop;
pub(crate) mod status;
#[cfg(feature = "push")]
pub(crate) mod windows;
