//! What the threads of a pusher tell each other.

use std::io;
use std::time::{Duration, Instant};

use crate::pushing::exchange::Answer;
use crate::pushing::item::Item;
use crate::session::FrozenWindow;
use crate::types::StartParams;

/// What other threads tell the cutter.
#[derive(Debug)]
pub(super) enum Command {
    /// The time between two profiles has changed.
    Interval(Duration),
    /// The sessions that the pusher starts have these parameters.
    Session(Box<StartParams>),
    /// The session is about to end: this is its last window.
    Cut(Box<FrozenWindow>),
    /// Cut once more, and end.
    End,
}

/// What other threads tell the sender.
pub(super) enum Job {
    Send(Item),
    /// What has become of the profile that the connector has.
    Answered(io::Result<Answer>),
    /// Send what can be sent until this time, and end.
    End(Instant),
}
