//! Several processes in one session.

mod ends;
mod gathering;
mod generations;
mod host;
mod members;
mod roles;
mod strangers;
