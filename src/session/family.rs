//! What happens to the session of a process that takes part in a family of processes, and what the
//! family does for it.
//!
//! The family belongs to a layer above this one, which fills the slot.

use std::ffi::OsString;
use std::sync::Arc;

use once_cell::race::OnceBox;

use crate::state::{PauseKind, SessionSettings};
use crate::stream::{FrozenChildren, ProfileSource};
use crate::types::{Generation, TimeStamp};
use crate::util::PsLock;

/// The variable by which a child process finds its parent. The prefix differs from that of the
/// profiler's variables, because no user is to set it.
pub(crate) const FAMILY_VARIABLE: &str = "GEKKOTA_FAMILY";

/// The capacity of the parent's session, in bytes: [`FAMILY_VARIABLE`]'s process has set it,
/// because the variable for entries has other limits.
pub(crate) const CAPACITY_VARIABLE: &str = "GEKKOTA_FAMILY_CAPACITY";

/// A change that child processes follow.
#[derive(Clone, Debug)]
pub(crate) enum SessionEvent {
    Started(SessionSettings),
    Stopped,
    /// A pause has begun, or ended.
    Paused(PauseKind, bool),
    PagesCleared,
}

/// The family of a process, as seen by this layer.
pub(crate) trait Family: Send + Sync {
    /// Prepares for child processes of a session that is about to start. No thread of that session
    /// exists yet. The caller holds the life-cycle lock. Returns what children cannot do, for the
    /// session's log.
    fn prepare(&self) -> Option<&'static str>;

    /// Learns of a change. Only passes it on to a thread.
    fn notice(&self, event: SessionEvent, lock: &PsLock);

    /// Learns of a new name of the process.
    fn rename(&self, name: &str, lock: &PsLock);

    /// Returns the variable by which a child process finds this one, if it may join.
    fn invitation(&self) -> Option<(&'static str, OsString)>;

    /// Returns the variable by which this process has found its parent, if it has one.
    fn parents_invitation(&self) -> Option<String>;

    /// Returns whether a parent process takes the last profile.
    fn has_parent(&self) -> bool;

    /// Freezes the profiles of all running children for a profile of this session that was taken at
    /// this time. Returns `None` if there are none. The caller holds no lock.
    fn freeze_children(
        &self,
        session: Generation,
        taken_at: TimeStamp,
    ) -> Option<Arc<dyn FrozenChildren>>;

    /// Sends the last profile to the parent process, within a bounded time. Returns whether that has
    /// it.
    fn hand_over(&self, profile: ProfileSource) -> bool;

    /// Leaves the family, and sends the children away. Called without a lock.
    fn leave(&self);

    /// Removes what other processes can see. The process is about to end. Takes no lock that the
    /// calling thread may hold.
    fn clean_up_at_exit(&self);

    /// Forgets the parent's family in the child of a fork.
    fn forget_in_child(&self, lock: &mut PsLock);
}

static FAMILY: OnceBox<&dyn Family> = OnceBox::new();

/// Fills the slot. Only the first call has an effect.
pub(crate) fn set_family(family: &'static dyn Family) {
    FAMILY.get_or_init(|| Box::new(family));
}

/// Returns the family, once its layer has filled the slot.
pub(crate) fn family() -> Option<&'static dyn Family> {
    FAMILY.get().copied()
}

/// Tells the family of a change.
pub(crate) fn notice(event: SessionEvent, lock: &PsLock) {
    if let Some(family) = family() {
        family.notice(event, lock);
    }
}
