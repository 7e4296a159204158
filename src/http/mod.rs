//! Serves profiles over HTTP for programs without their own server.
//!
//! # Purpose
//! Listens at the address that a variable names, and reads requests. The layer above knows what can
//! be asked for: it gives a function that answers.
//!
//! # Threads and locks
//! Other threads reach the server under the `PsLock`, by a channel. No thread of this folder holds
//! a lock while it waits.
//!
//! - The *server* waits for all sockets, and for no client. It has its own descriptor table where
//!   that is possible, and a second thread wakes it there (`platform/socket/unix_socket.rs`).
//! - The *asker* shares the application's table, because the threads that answer are its children,
//!   and they run the application's callbacks. It polls futures, and does only short work.
//!
//! # Imports
//! `platform`, `session`, `types`, `util`
//!
//! # Invariants
//! - A client is not trusted. Its connection has a place among few, a limit for each thing that it
//!   sends, and a time for each step.
//! - Without a token, the server listens only where this machine alone connects, and answers no
//!   page of another site.
//! - A client that leaves is noticed while its answer is prepared.
//!
//! # Read next
//! `request.rs`, `connection.rs`, `server.rs`.

mod connection;
mod request;
mod server;

pub(crate) use request::{Asked, HttpAnswer};
pub(crate) use server::{Answering, serve, stop_serving};
