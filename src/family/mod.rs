//! Lets a process and its child processes record one session together.
//!
//! # Purpose
//! A parent listens on a Unix socket. A child finds it by a variable, and joins. The parent then
//! tells the child to start, stop and pause, and gathers the child's profile. A child that ends
//! sends its last profile. Each process of a family may be both: the children of a child are its
//! own family, whose profiles it passes on with its own.
//!
//! # Threads and locks
//! Other threads reach the hub and the membership under the `PsLock`, by channels. No thread of the
//! family holds a lock while it waits.
//!
//! - Parent: the hub (`hub.rs`) waits for all sockets, and for no child. A second thread in its
//!   descriptor table wakes it (`platform/socket/unix_socket.rs`). Further threads read last profiles
//!   (`readers.rs`), and rescue the recordings of children that sent no profile (`rescues.rs`).
//! - Child: a reader, a sender and an executor, and a thread for each profile (`link.rs`).
//!
//! # Imports
//! `buffer`, `export`, `markers`, `platform`, `session`, `state`, `stream`, `types`, `util`
//!
//! # Invariants
//! - A message is not trusted. One that is malformed, too long or out of order ends its connection,
//!   with a line in the session's log, and nothing else.
//! - Memory grows with what has arrived, not by what a message announces.
//! - A process listens only if children are asked for, and a set-user-id program never joins.
//! - No function of the application runs on a thread with a descriptor table of its own.
//!
//! # Read next
//! `messages.rs`, `orders.rs`, `reports.rs`, `frames.rs`, `parent.rs`, `hub.rs`, `hub_state.rs`,
//! `following.rs`, `arrivals.rs`, `readers.rs`, `rescues.rs`, `jobs.rs`, `ledger.rs`,
//! `balancing.rs`, `folded_chunks.rs`, `gathering.rs`, `child.rs`, `link.rs`, `executor.rs`,
//! `life_cycle.rs`.

mod arrivals;
mod awaited_sampling;
mod balancing;
mod child;
mod event_log;
mod executor;
mod fields;
mod folded_chunks;
mod followed_session;
mod following;
mod frames;
mod gathering;
mod hub;
mod hub_state;
mod invitation;
mod jobs;
mod ledger;
mod life_cycle;
mod link;
mod member;
mod messages;
mod orders;
mod outbox;
mod parent;
mod readers;
mod reports;
mod rescues;
mod sampling_waits;
#[cfg(any(test, fuzzing))]
mod scripted_hub;

#[cfg(any(test, fuzzing))]
pub(crate) use frames::{Frame, FrameDecoder, HEADER_BYTES};
pub(crate) use life_cycle::{
    ensure_started, init, init_with_end, start, start_early, start_guarded,
};
#[cfg(any(test, fuzzing))]
pub(crate) use messages::MAX_MESSAGE_CONTENT;
#[cfg(all(test, not(loom)))]
pub(crate) use orders::Order;
#[cfg(any(test, fuzzing))]
pub(crate) use orders::{NumberedOrder, order_limits};
pub(crate) use parent::{wait_for_children, wait_for_sampling_of_children};
#[cfg(all(test, not(loom)))]
pub(crate) use reports::Hello;
#[cfg(any(test, fuzzing))]
pub(crate) use reports::{Report, report_limits};
#[cfg(any(test, fuzzing))]
pub(crate) use scripted_hub::ScriptedHub;
