//! The application's data about its process: name, type, pages, and profiles of child processes.

use std::sync::Arc;

use crate::platform::monotonic_now;
use crate::session::exit_profile::{MAX_BYTES, child_profile};
use crate::session::family_events::{SessionEvent, family, notice};
use crate::session::start_stop::ensure_core;
use crate::state::{
    ACTIVE_PS, CORE_PS, ChildProfile, ChildText, CorePs, CrashFacts, KEPT_OVERHEAD_BYTES,
};
use crate::stream::check_memory;
use crate::types::{ExitProfileError, Page, TimeStamp};
use crate::util::{PsLock, is_any_lock_held_on_current_thread};

/// Calls `body` with `CorePs`, creating it if necessary.
fn with_core(body: impl FnOnce(&mut CorePs)) {
    if is_any_lock_held_on_current_thread() {
        return;
    }
    ensure_core();
    let mut lock = PsLock::acquire();
    // `None` after a concurrent shutdown.
    let Some(core) = CORE_PS.get_mut(&mut lock) else {
        return;
    };
    body(core);
    if let (Some(core), Some(facts)) = (CORE_PS.get(&lock), crash_facts(&lock)) {
        facts.add_process(core);
    }
}

/// Returns the facts in the crash file of the running session.
fn crash_facts(lock: &PsLock) -> Option<&CrashFacts> {
    ACTIVE_PS.get(lock).as_ref()?.session.crash_facts.as_deref()
}

/// See `profiler_set_process_name`.
pub(crate) fn set_process_name(name: &str, etld1: Option<&str>) {
    let (name, etld1) = (name.to_owned(), etld1.map(str::to_owned));
    with_core(|core| core.set_process_name(name, etld1));
    if is_any_lock_held_on_current_thread() {
        return;
    }
    let lock = PsLock::acquire();
    if let (Some(core), Some(family)) = (CORE_PS.get(&lock), family()) {
        family.rename(&core.process_name, &lock);
    }
}

/// See `profiler_set_process_type`.
pub(crate) fn set_process_type(process_type: &str) {
    let process_type = process_type.to_owned();
    with_core(|core| core.set_process_type(process_type));
}

/// See `profiler_set_version`.
pub(crate) fn set_version(version: &str) {
    let version = Some(version.to_owned()).filter(|version| !version.is_empty());
    with_core(|core| core.version = version);
}

/// See `profiler_register_page`.
pub(crate) fn register_page(page: Page) {
    // Id 0 means no page.
    if page.inner_window_id != 0 {
        let page = Arc::new(page);
        let registered = Arc::clone(&page);
        with_core(|core| core.register_page(registered));
        if !is_any_lock_held_on_current_thread()
            && let Some(facts) = crash_facts(&PsLock::acquire())
        {
            facts.add_page(&page);
        }
    }
}

/// See `profiler_unregister_page`.
pub(crate) fn unregister_page(inner_window_id: u64) {
    if is_any_lock_held_on_current_thread() {
        return;
    }
    let _expired;
    let mut lock = PsLock::acquire();
    let Some(core) = CORE_PS.get_mut(&mut lock) else {
        return;
    };
    let gone = core.unregister_page(inner_window_id);
    if let (Some(page), Some(active)) = (gone, ACTIVE_PS.get(&lock)) {
        _expired = active.keep_ended_page(page, &lock);
    }
}

/// See `profiler_clear_all_pages`.
pub(crate) fn clear_all_pages() {
    if is_any_lock_held_on_current_thread() {
        return;
    }
    // Declared before the lock, so that they are dropped after it is released.
    let (_registered, _ended);
    let mut lock = PsLock::acquire();
    if let Some(core) = CORE_PS.get_mut(&mut lock) {
        _registered = std::mem::take(&mut core.pages);
    }
    if let Some(active) = ACTIVE_PS.get(&lock) {
        _ended = active.ended_pages.borrow_mut().take_all();
        active.report_kept_bytes();
    }
    notice(SessionEvent::PagesCleared, &lock);
}

/// See `profiler_received_exit_profile`.
pub(crate) fn received_exit_profile(mut profile: String) -> Result<(), ExitProfileError> {
    profile.shrink_to_fit();
    keep_exit_profile(ChildText::Memory(profile))
}

/// Adds a child's profile to the running session, which keeps the text.
///
/// # Errors
/// See `profiler_received_exit_profile`.
pub(crate) fn keep_exit_profile(text: ChildText) -> Result<(), ExitProfileError> {
    keep_child_profile(exit_profile(text)?).map(drop)
}

/// Reads the profile of a child that has exited.
///
/// # Errors
/// See `profiler_received_exit_profile`.
pub(crate) fn exit_profile(text: ChildText) -> Result<ChildProfile, ExitProfileError> {
    if is_any_lock_held_on_current_thread() {
        return Err(ExitProfileError::Inactive);
    }
    let bytes = text.len() as u64;
    let max_bytes = max_exit_profile_bytes().ok_or(ExitProfileError::Inactive)?;
    if bytes > max_bytes {
        return Err(ExitProfileError::TooLarge { bytes, max_bytes });
    }
    // The parser copies names of members and strings with escapes, which may be long.
    check_memory(text.len()).map_err(|_| ExitProfileError::OutOfMemory { bytes })?;
    child_profile(text)
}

/// Adds the profile of a child that has exited to the running session. Returns when: profiles of
/// this process that are taken later have it.
///
/// # Errors
/// See `profiler_received_exit_profile`.
pub(crate) fn keep_child_profile(profile: ChildProfile) -> Result<TimeStamp, ExitProfileError> {
    // Dropped after the lock is released: the profiles may be long.
    let (expired, kept_at) = {
        let lock = PsLock::acquire();
        let active = ACTIVE_PS
            .get(&lock)
            .as_ref()
            .ok_or(ExitProfileError::Inactive)?;
        let max_bytes = active.max_exit_profile_bytes();
        let bytes = profile.bytes() + KEPT_OVERHEAD_BYTES;
        if bytes > max_bytes {
            return Err(ExitProfileError::TooLarge { bytes, max_bytes });
        }
        active.session.log.add("exit profile received");
        // Read under the lock, under which profiles are taken.
        (active.keep_exit_profile(profile, &lock), monotonic_now())
    };
    drop(expired);
    Ok(kept_at)
}

/// Returns the maximum size of an exit profile now, in bytes. Returns `None` without a session.
pub(crate) fn max_exit_profile_bytes() -> Option<u64> {
    let lock = PsLock::acquire();
    let active = ACTIVE_PS.get(&lock).as_ref()?;
    Some(active.max_exit_profile_bytes().min(MAX_BYTES))
}
