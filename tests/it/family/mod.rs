//! Several processes in one session.

mod ends;
mod gathering;
mod generations;
mod host;
mod members;
mod memory_limit;
mod roles;
mod strangers;
