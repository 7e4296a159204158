//! Pauses and resumes recording, or sampling only.

use crate::buffer::{EntryHead, EntryKind};
use crate::platform::monotonic_now;
use crate::session::callbacks::notify;
use crate::session::family_events::{SessionEvent, notice};
use crate::state::{ACTIVE_PS, ActivePs, PauseKind, RacyFeatures, put_entry};
use crate::types::{ProfilingState, TimeStamp};
use crate::util::{PsLock, is_any_lock_held_on_current_thread};
use crate::waiting_tasks::follow_pause;

/// See `profiler_pause`.
pub(crate) fn pause() {
    if RacyFeatures::is_active_and_unpaused() && !is_any_lock_held_on_current_thread() {
        notify(ProfilingState::Pausing);
        set_paused(PauseKind::All, true);
    }
}

/// See `profiler_resume`.
pub(crate) fn resume() {
    if set_paused(PauseKind::All, false) {
        notify(ProfilingState::Resumed);
    }
}

/// See `profiler_pause_sampling`. Returns whether that changed anything.
pub(crate) fn pause_sampling() -> bool {
    set_paused(PauseKind::Sampling, true)
}

/// See `profiler_resume_sampling`.
pub(crate) fn resume_sampling() {
    set_paused(PauseKind::Sampling, false);
}

/// Sets or clears a pause, and returns whether that changed anything.
///
/// Holds the `PsLock`, so that the session cannot end during the change.
fn set_paused(kind: PauseKind, paused: bool) -> bool {
    if is_any_lock_held_on_current_thread() {
        return false;
    }
    let lock = PsLock::acquire();
    let Some(session) = ACTIVE_PS.get(&lock).as_ref().map(ActivePs::session) else {
        return false;
    };
    let entry = match (kind, paused) {
        (PauseKind::All, true) => EntryKind::Pause,
        (PauseKind::All, false) => EntryKind::Resume,
        (PauseKind::Sampling, true) => EntryKind::PauseSampling,
        (PauseKind::Sampling, false) => EntryKind::ResumeSampling,
    };
    let is_changed = session.pauses.set(kind, paused, &lock, |now: TimeStamp| {
        let mut head = EntryHead::new(entry);
        put_entry(
            session.generation,
            now,
            &*head.number(now.since_ns(session.process_start)),
        );
    });
    if is_changed {
        notice(SessionEvent::Paused(kind, paused), &lock);
        session.note_pauses();
        follow_pause(monotonic_now(), RacyFeatures::is_sampling_paused());
        session.log.add(match (kind, paused) {
            (PauseKind::All, true) => "paused",
            (PauseKind::All, false) => "resumed",
            (PauseKind::Sampling, true) => "sampling paused",
            (PauseKind::Sampling, false) => "sampling resumed",
        });
    }
    is_changed
}
