//! Several processes in one session.

mod come_and_go;
mod ends;
mod gathering;
mod generations;
mod host;
mod members;
mod memory_limit;
mod roles;
mod strangers;
