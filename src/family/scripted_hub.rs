//! A hub without sockets, for messages from a fuzzer.

use std::time::Instant;

use crate::family::hub_state::HubState;
use crate::family::member::{MemberState, next_id};
use crate::family::reports::Report;

/// A hub with one connection, for messages from a fuzzer.
pub(crate) struct ScriptedHub {
    hub: HubState,
    child: MemberState,
}

impl ScriptedHub {
    /// Creates a hub whose children know this token, and a process that has connected.
    pub(crate) fn new(token: &str) -> Self {
        Self {
            hub: HubState::new(token.to_owned()),
            child: MemberState::new(next_id(), None, Instant::now()),
        }
    }

    /// Handles a message of the process. Returns false if the connection has ended.
    pub(crate) fn hear(&mut self, report: Report<'_>) -> bool {
        let is_in_order = self.hub.handle(&mut self.child, report).is_ok();
        self.hub
            .tick(Instant::now(), &mut std::iter::once(&mut self.child));
        is_in_order && self.child.broken.is_none()
    }
}
