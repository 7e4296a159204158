//! Uses the last profile of the process: saves it, and reports it.

use std::path::Path;

use crate::platform::StandardStream;
use crate::session::crash_file;
use crate::session::env::{env_notices, environment, look_on};
use crate::session::family_events::family;
use crate::session::hand_over::hand_over;
use crate::session::notices;
use crate::session::save::expand_path;
use crate::session::shutdown_file::{Destination, destination, has_own_id, is_forked, note_saved};
use crate::session::snapshot::{FrozenProfile, freeze_unnoticed, take_kept};

/// Saves and reports the last profile, as far as the variables or the application ask for it: that
/// of the running session, or of the last `ProfilerSession` that ended.
pub(crate) fn use_last_profile() {
    let kept = take_kept();
    let has_parent = family().is_some_and(|family| family.has_parent());
    if !environment::uses_profile_at_shutdown() && !has_parent {
        return;
    }
    let profile = freeze_unnoticed(None).or(kept);
    let is_handed_over = has_parent
        && profile
            .clone()
            .is_some_and(|profile| hand_over(profile.at_shutdown()));
    // Without a %p, the file is the parent's, which has this profile in its own.
    let path = environment::shutdown_path().filter(|path| !is_handed_over || has_own_id(path));
    if path.is_none() && !environment::wants_report() {
        return;
    }
    match profile {
        None => env_notices::notify_no_profile_at_shutdown(path.as_deref(), is_forked()),
        Some(profile) => save_and_report(profile.at_shutdown(), path.as_deref()),
    }
}

/// Saves the profile at `path`, and then prints the report that the environment asks for.
fn save_and_report(profile: FrozenProfile, path: Option<&Path>) {
    let reported = environment::wants_report().then(|| profile.clone());
    if let Some(asked) = path {
        let Destination { path, reason } = destination(asked);
        match profile.save_at_shutdown(&path) {
            Ok(saved) => {
                crash_file::remove();
                if reason.is_none() {
                    // The saved path may lack symbolic links of the one that was asked for.
                    note_saved(&expand_path(asked));
                }
                let reason = reason.map(|reason| format!(", {reason}"));
                notices::notify(&format!(
                    "saved the profile as {}{}",
                    saved.display(),
                    reason.unwrap_or_default()
                ));
            }
            Err(error) => notices::notify(&error.to_string()),
        }
    }
    let look = || look_on(StandardStream::Error);
    match reported.map(|profile| profile.report(look())) {
        None => {}
        Some(Ok(report)) => env_notices::print_report(&report),
        Some(Err(error)) => notices::notify(&format!("cannot print a report: {error}")),
    }
}
