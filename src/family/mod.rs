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
//!   descriptor table wakes it (`platform/socket/unix_socket.rs`). Further threads read last profiles,
//!   and rescue the recordings of children that sent no profile (`arrivals.rs`).
//! - Child: a reader, a sender and an executor, and a thread for each profile (`link.rs`).
//!
//! # Imports
//! `buffer`, `markers`, `platform`, `session`, `state`, `stream`, `types`, `util`
//!
//! # Invariants
//! - A message is not trusted. One that is malformed, too long or out of order ends its connection,
//!   with a line in the session's log, and nothing else.
//! - Memory grows with what has arrived, not by what a message announces.
//! - A process listens only if children are asked for, and a set-user-id program never joins.
//! - No function of the application runs on a thread with a descriptor table of its own.
//!
//! # Read next
//! `messages.rs`, `orders.rs`, `reports.rs`, `parent.rs`, `hub.rs`, `hub_state.rs`, `member.rs`,
//! `jobs.rs`, `arrivals.rs`, `ledger.rs`, `child.rs`, `link.rs`, `executor.rs`, `life_cycle.rs`.

mod arrivals;
mod child;
mod executor;
mod hub;
mod hub_state;
mod jobs;
mod ledger;
mod life_cycle;
mod link;
mod member;
mod messages;
mod orders;
mod parent;
mod reports;
#[cfg(any(test, fuzzing))]
mod scripted_hub;

pub(crate) use life_cycle::{
    ensure_started, init, init_with_end, start, start_early, start_guarded,
};
#[cfg(any(test, fuzzing))]
pub(crate) use messages::{Frame, FrameDecoder, HEADER_BYTES, MAX_MESSAGE_CONTENT};
#[cfg(all(test, not(loom)))]
pub(crate) use orders::Order;
#[cfg(any(test, fuzzing))]
pub(crate) use orders::{NumberedOrder, order_limits};
pub(crate) use parent::{wait_for_children, wait_for_sampling_of_children};
#[cfg(all(test, not(loom)))]
pub(crate) use reports::{Hello, LAST_PROFILE, TextPart};
#[cfg(any(test, fuzzing))]
pub(crate) use reports::{Report, report_limits};
#[cfg(any(test, fuzzing))]
pub(crate) use scripted_hub::ScriptedHub;
