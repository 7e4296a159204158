//! What the host says of its process: its name, its pages, and its children's profiles.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::base::{ExitProfileError, Page, PsLock};
use crate::control::life_cycle::ensure_core;
use crate::state::{ACTIVE_PS, CORE_PS, CorePs, core_buffer};

/// Calls `body` with `CorePs`, which is made if there is none.
fn with_core(body: impl FnOnce(&mut CorePs)) {
    ensure_core();
    let mut lock = PsLock::acquire();
    // A shutdown may have come between.
    if let Some(core) = CORE_PS.get_mut(&mut lock) {
        body(core);
    }
}

/// See `profiler_set_process_name`.
pub(crate) fn set_process_name(name: &str, etld1: Option<&str>) {
    let (name, etld1) = (name.to_owned(), etld1.map(str::to_owned));
    with_core(|core| core.set_process_name(name, etld1));
}

/// See `profiler_register_page`.
pub(crate) fn register_page(page: Page) {
    let page = Arc::new(page);
    with_core(|core| core.register_page(page));
}

/// See `profiler_unregister_page`.
pub(crate) fn unregister_page(inner_window_id: u64) {
    let buffer = core_buffer().range();
    let mut lock = PsLock::acquire();
    let Some(core) = CORE_PS.get_mut(&mut lock) else { return };
    let gone = core.unregister_page(inner_window_id);
    if let Some(active) = ACTIVE_PS.get(&lock) {
        let mut ended = active.ended_pages.borrow_mut();
        ended.drop_expired(buffer.start);
        gone.into_iter().for_each(|page| ended.keep(buffer.end, page));
    }
}

/// See `profiler_clear_all_pages`.
pub(crate) fn clear_all_pages() {
    let mut lock = PsLock::acquire();
    if let Some(core) = CORE_PS.get_mut(&mut lock) {
        core.pages.clear();
    }
    if let Some(active) = ACTIVE_PS.get(&lock) {
        active.ended_pages.borrow_mut().retain(|_| false);
    }
}

/// See `profiler_received_exit_profile`.
pub(crate) fn received_exit_profile(profile: String) -> Result<(), ExitProfileError> {
    check_profile(&profile)?;
    let buffer = core_buffer().range();
    let lock = PsLock::acquire();
    let active = ACTIVE_PS.get(&lock).as_ref().ok_or(ExitProfileError::Inactive)?;
    let mut kept = active.exit_profiles.borrow_mut();
    kept.drop_expired(buffer.start);
    kept.keep(buffer.end, profile.into());
    Ok(())
}

/// Reads the whole of it, so that it can stand in a profile as it is.
fn check_profile(text: &str) -> Result<(), ExitProfileError> {
    let not_json = |error: serde_json::Error| ExitProfileError::NotJson(error.to_string());
    let parts: HashMap<String, &RawValue> = serde_json::from_str(text).map_err(not_json)?;
    for (lacks, begins) in [("meta", '{'), ("threads", '[')] {
        if !parts.get(lacks).is_some_and(|part| part.get().starts_with(begins)) {
            return Err(ExitProfileError::NotAProfile { lacks });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_childs_profile_is_one() {
        let refusal = |text: &str| check_profile(text).unwrap_err().to_string();
        assert_eq!(check_profile(r#" {"meta": {}, "threads": [], "x": null} "#), Ok(()));
        assert!(refusal("\u{1f}\u{8b}").contains("uncompressed"));
        assert!(refusal(r#"{"meta": {}, "threads": [}"#).contains("line 1"));
        assert!(refusal(r#"{"meta": {}, "threads": [], "cut": "#).contains("not JSON"));
        assert!(refusal(r#"[1, 2]"#).contains("not JSON"));
        assert!(refusal(r#"{"threads": []}"#).contains(r#"no "meta""#));
        assert!(refusal(r#"{"meta": {}, "threads": {}}"#).contains(r#"no "threads""#));
    }
}
