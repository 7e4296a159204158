//! Unix sockets between a process and its child processes, and TCP sockets for HTTP.

mod calls;
mod copies_in_child;
#[forbid(unsafe_code)]
mod mailbox;
#[forbid(unsafe_code)]
mod private_folder;
#[forbid(unsafe_code)]
mod unix_socket;

pub(crate) use calls::random_bytes;
pub(crate) use copies_in_child::close_sockets_in_child;
pub(crate) use mailbox::Mailbox;
pub(crate) use private_folder::{PrivateFolder, is_private_folder};
#[cfg(test)]
pub(crate) use unix_socket::socket_pair;
pub(crate) use unix_socket::{Interest, ListeningSocket, Socket, is_socket_open, wait_for_sockets};
