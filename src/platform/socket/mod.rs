//! Unix sockets between a process and its child processes, and TCP sockets for HTTP.

pub(super) mod calls;
pub(super) mod copies_in_child;
#[forbid(unsafe_code)]
pub(super) mod unix_socket;
