//! The profile is saved at every end of the process, and the process ends as it would without the
//! profiler.

mod asked_in_code;
mod blocked;
mod exec;
mod exits;
mod families;
mod notices;
mod roles;
mod signals;
