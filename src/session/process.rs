//! The application's data about its process: name, type, pages, and profiles of child processes.

use std::sync::Arc;

use crate::session::exit_profile::{MAX_BYTES, split_profile};
use crate::session::start_stop::ensure_core;
use crate::state::{ACTIVE_PS, CORE_PS, CorePs, CrashFacts, KEPT_OVERHEAD_BYTES};
use crate::stream::check_memory;
use crate::types::{ExitProfileError, Page};
use crate::util::{PsLock, is_any_lock_held_on_current_thread};

/// Memory for splitting an exit profile, as a multiple of its size: a copy that doubles when it grows,
/// and the final one.
const SPLIT_FACTOR: usize = 4;

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
}

/// See `profiler_received_exit_profile`.
pub(crate) fn received_exit_profile(profile: String) -> Result<(), ExitProfileError> {
    if is_any_lock_held_on_current_thread() {
        return Err(ExitProfileError::Inactive);
    }
    let bytes = profile.len() as u64;
    let max_bytes = max_exit_profile_bytes().ok_or(ExitProfileError::Inactive)?;
    if bytes > max_bytes {
        return Err(ExitProfileError::TooLarge { bytes, max_bytes });
    }
    check_memory(profile.len() * SPLIT_FACTOR)
        .map_err(|_| ExitProfileError::OutOfMemory { bytes })?;
    let processes = split_profile(&profile)?;
    // Dropped after the lock is released: the profiles may be long.
    let expired = {
        let lock = PsLock::acquire();
        let active = ACTIVE_PS
            .get(&lock)
            .as_ref()
            .ok_or(ExitProfileError::Inactive)?;
        let sizes = processes
            .iter()
            .map(|process| process.len() as u64 + KEPT_OVERHEAD_BYTES);
        let (bytes, max_bytes) = (sizes.sum(), active.max_exit_profile_bytes());
        if bytes > max_bytes {
            return Err(ExitProfileError::TooLarge { bytes, max_bytes });
        }
        active.session.log.add("exit profile received");
        active.keep_exit_profiles(processes, &lock)
    };
    drop(expired);
    Ok(())
}

/// Returns the maximum size of an exit profile now, in bytes. Returns `None` without a session.
fn max_exit_profile_bytes() -> Option<u64> {
    let lock = PsLock::acquire();
    let active = ACTIVE_PS.get(&lock).as_ref()?;
    Some(active.max_exit_profile_bytes().min(MAX_BYTES))
}
