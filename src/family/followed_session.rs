//! The session of the parent, as its children are to follow it.

use crate::family::orders::ChildSession;
use crate::session::max_exit_profile_bytes;
use crate::state::SessionSettings;
use crate::types::{ProcessId, ThreadFilter};

/// The session as the children are to follow it.
#[derive(Debug)]
pub(super) struct FollowedSession {
    pub(super) settings: SessionSettings,
    pub(super) is_paused: bool,
    pub(super) is_sampling_paused: bool,
}

impl FollowedSession {
    /// Returns whether a child process takes part.
    pub(super) fn selects(&self, process: i32) -> bool {
        let filter = ThreadFilter::new(&self.settings.filters);
        let process = ProcessId::from_number(process);
        self.settings.has_children && !filter.excludes_process(process)
    }

    pub(super) fn of_child(&self) -> ChildSession {
        ChildSession::of_parent(&self.settings, max_exit_profile_bytes().unwrap_or(0))
    }
}
