//! Pushes profiles to a store, one after the other, without a gap and without an overlap.
//!
//! # Purpose
//! Cuts the session into windows, writes each as a profile, and sends it by HTTP. Profiles that
//! cannot be sent wait in a queue, in memory or in a folder.
//!
//! # Threads and locks
//! Other threads reach the pusher under the `PsLock`, by a channel. No thread of this folder holds
//! a lock while it waits.
//!
//! - The *cutter* takes snapshots and writes profiles. It shares the application's descriptor
//!   table, because it may start a session, and so run the application's callbacks. It prints the
//!   notices of the sender, whose standard error leads nowhere, until the sender has ended.
//! - The *sender* owns the queue, and waits for no server. It has its own descriptor table where
//!   that is possible.
//! - The *connector* shares the sender's table. It looks up the address of the server, reads the
//!   trusted certificates, connects, and waits for the answer, one request at a time. A look-up may
//!   take long, so no thread waits for the end of the connector.
//!
//! # Imports
//! `export`, `platform`, `session`, `types`, `util`
//!
//! # Invariants
//! - Each sample is in one profile, and each profile is sent until the store has answered or the
//!   queue is full.
//! - The application waits for this folder for two seconds at most, until the queue is open, and for
//!   about a second at the end.
//! - A server is not trusted: its answer has a limit of bytes and of time. With TLS, it gets no byte
//!   of a request before it has proved its name.
//! - A secret is neither stored nor printed.
//!
//! # Read next
//! `target.rs`, `queue.rs`, `tls.rs`, `exchange.rs`, `rejection.rs`, `sender.rs`, `cutter.rs`,
//! `life_cycle.rs`.

mod cutter;
mod exchange;
mod life_cycle;
mod queue;
#[cfg(feature = "otlp-unstable")]
mod rejection;
mod sender;
mod target;
#[cfg(feature = "push-tls")]
mod tls;
#[cfg(all(test, feature = "push-tls", not(target_env = "musl")))]
mod tls_tests;

pub(crate) use life_cycle::{RunningPush, push, push_of_variables, stop_pushing};
