//! The calls of the API that begin a session: they fill the slot below, and join the parent.

use std::ffi::OsString;
use std::panic::Location;
use std::path::Path;
use std::sync::Arc;

use crate::family::child::{
    forget_membership_in_child, hand_over, has_parent, join, leave as leave_parent, tell_name,
};
use crate::family::ledger::forget_folded_chunks_in_child;
use crate::family::messages::{Invitation, VERSION};
use crate::family::parent::{
    forget_hub_in_child, freeze_children, give_to_hub, invitation, is_own_invitation, listen,
    own_invitation, remove_socket, stop_listening,
};
use crate::markers::scope_addresses_to_process;
use crate::platform::{current_process_id, is_private_folder, is_socket_open};
use crate::session::{
    self, FAMILY_VARIABLE, Family, FrozenProfile, SessionEvent, environment, set_family, watch_exit,
};
use crate::stream::{FrozenChildren, ProfileSource};
use crate::types::{Generation, StartError, StartParams, TimeStamp, WhileOtherRuns};
use crate::util::{PsLock, is_any_lock_held_on_current_thread};

/// The family of this process.
struct OwnFamily;

impl Family for OwnFamily {
    fn prepare(&self) -> Option<&'static str> {
        listen()
    }

    fn notice(&self, event: SessionEvent, lock: &PsLock) {
        give_to_hub(|hub, states| hub.follow(event, states), lock);
    }

    fn rename(&self, name: &str, lock: &PsLock) {
        tell_name(name, lock);
    }

    fn invitation(&self) -> Option<(&'static str, OsString)> {
        invitation().map(|value| (FAMILY_VARIABLE, value))
    }

    fn parents_invitation(&self) -> Option<String> {
        parents_invitation()?.to_value().into_string().ok()
    }

    fn has_parent(&self) -> bool {
        has_parent()
    }

    fn freeze_children(
        &self,
        session: Generation,
        taken_at: TimeStamp,
    ) -> Option<Arc<dyn FrozenChildren>> {
        freeze_children(session, taken_at)
    }

    fn hand_over(&self, profile: ProfileSource) -> bool {
        hand_over(FrozenProfile::of_source(profile))
    }

    fn leave(&self) {
        stop_listening();
        leave_parent();
    }

    fn clean_up_at_exit(&self) {
        if !is_any_lock_held_on_current_thread() {
            remove_socket();
        }
    }

    fn forget_in_child(&self, lock: &mut PsLock) {
        forget_hub_in_child(lock);
        forget_membership_in_child(lock);
        forget_folded_chunks_in_child(lock);
    }
}

/// Fills the slot of the layer below.
fn install() {
    set_family(&OwnFamily);
}

/// Makes the flow ids of this process distinct from those of its family, if another process has
/// invited this one. Called before the first session, which may begin before this process joins.
fn scope_flows() {
    if !is_any_lock_held_on_current_thread() && parents_invitation().is_some() {
        scope_addresses_to_process(current_process_id().to_number().unsigned_abs());
    }
}

/// Joins the family of the process that has started this one, if it has invited this one.
fn join_if_invited() {
    if is_any_lock_held_on_current_thread() {
        return;
    }
    if let Some(invitation) = parents_invitation() {
        join(invitation);
    }
}

/// Returns the invitation of another process to this one, if that process still listens. A program
/// may outlive its parent, and then has none.
fn parents_invitation() -> Option<Invitation> {
    let is_valid = |invitation: &Invitation| {
        let folder = invitation.socket.parent();
        invitation.version == VERSION
            && !is_own_invitation(invitation)
            && folder.is_some_and(is_private_folder)
            && is_socket_open(&invitation.socket)
    };
    own_invitation().filter(is_valid)
}

/// See `early_start!`.
pub(crate) fn start_early(constructor: usize) {
    install();
    scope_flows();
    session::start_early(constructor);
}

/// See `profiler_init`.
pub(crate) fn init() {
    install();
    scope_flows();
    session::init();
    join_if_invited();
}

/// See `AutoProfilerInitBuilder`.
pub(crate) fn init_with_end(file: Option<&Path>, reports: bool) {
    install();
    scope_flows();
    session::init_with_end(file, reports);
    join_if_invited();
}

/// Fills the slot, and lets a normal end of the process remove the socket of a session with
/// children. Called without a lock, because it may wait for the loader.
fn prepare(params: &StartParams) {
    install();
    if params.children || environment::wants_children() {
        watch_exit();
    }
}

/// See `profiler_start`.
pub(crate) fn start(params: &StartParams) -> Result<Generation, StartError> {
    prepare(params);
    session::start(params)
}

/// See `profiler_ensure_started`.
pub(crate) fn ensure_started(params: &StartParams) -> Result<Generation, StartError> {
    prepare(params);
    session::ensure_started(params)
}

/// See `ProfilerSession`.
pub(crate) fn start_guarded(
    params: &StartParams,
    place: &'static Location<'static>,
    while_other_runs: WhileOtherRuns,
) -> Result<Generation, StartError> {
    prepare(params);
    session::start_guarded(params, place, while_other_runs)
}
