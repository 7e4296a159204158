//! The application's data about its process: name, type and pages.

use std::sync::Arc;

use crate::session::family::{SessionEvent, family, notice};
use crate::session::life_cycle::start_stop::ensure_core;
use crate::state::{ACTIVE_PS, CORE_PS, CorePs, CrashFacts};
use crate::types::Page;
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
