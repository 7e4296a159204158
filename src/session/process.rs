//! The application's data about its process: name, pages, and profiles of child processes.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::session::start_stop::ensure_core;
use crate::state::{ACTIVE_PS, CORE_PS, CorePs};
use crate::types::{ExitProfileError, Page};
use crate::util::{PsLock, is_any_lock_held_on_current_thread};

/// Calls `body` with `CorePs`, creating it if necessary.
fn with_core(body: impl FnOnce(&mut CorePs)) {
    if is_any_lock_held_on_current_thread() {
        return;
    }
    ensure_core();
    let mut lock = PsLock::acquire();
    // `None` after a concurrent shutdown.
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
    // Id 0 means no page.
    if page.inner_window_id != 0 {
        let page = Arc::new(page);
        with_core(|core| core.register_page(page));
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
    let (bytes, max_bytes) = (profile.len() as u64, max_exit_profile_bytes()?);
    if bytes > max_bytes {
        return Err(ExitProfileError::TooLarge { bytes, max_bytes });
    }
    let mut processes = Vec::new();
    split_profile(&profile, &mut processes)?;
    // Dropped after the lock is released: the profiles may be long.
    let expired = {
        let lock = PsLock::acquire();
        let active = ACTIVE_PS
            .get(&lock)
            .as_ref()
            .ok_or(ExitProfileError::Inactive)?;
        active.session.log.add("exit profile received");
        active.keep_exit_profiles(processes, &lock)
    };
    drop(expired);
    Ok(())
}

/// Returns the maximum size of all exit profiles of the running session, in bytes.
fn max_exit_profile_bytes() -> Result<u64, ExitProfileError> {
    let lock = PsLock::acquire();
    let active = ACTIVE_PS.get(&lock).as_ref();
    active
        .map(|active| active.max_exit_profile_bytes())
        .ok_or(ExitProfileError::Inactive)
}

/// Validates a profile, and splits it into its own part and the profiles of its child processes,
/// recursively.
///
/// The result is a flat list, because the viewer shows only one level of child processes.
fn split_profile(text: &str, into: &mut Vec<Arc<str>>) -> Result<(), ExitProfileError> {
    let not_json = |error: serde_json::Error| ExitProfileError::NotJson(error.to_string());
    let parts: HashMap<String, &RawValue> = serde_json::from_str(text).map_err(not_json)?;
    for (lacks, begins) in [("meta", '{'), ("threads", '[')] {
        if !parts
            .get(lacks)
            .is_some_and(|part| part.get().starts_with(begins))
        {
            return Err(ExitProfileError::NotAProfile { lacks });
        }
    }
    let Some(processes) = parts.get("processes").map(|processes| processes.get()) else {
        into.push(text.into());
        return Ok(());
    };
    // Replaces the list of processes, a slice of the text, with an empty list.
    let start = processes.as_ptr().addr() - text.as_ptr().addr();
    into.push(
        [&text[..start], "[]", &text[start + processes.len()..]]
            .concat()
            .into(),
    );
    let inner: Vec<&RawValue> = serde_json::from_str(processes).map_err(not_json)?;
    inner
        .into_iter()
        .try_for_each(|process| split_profile(process.get(), into))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_profile_flattens_children_and_rejects_other_text() {
        let error_of = |text: &str| {
            split_profile(text, &mut Vec::new())
                .unwrap_err()
                .to_string()
        };
        let parts = |text: &str| {
            let mut parts = Vec::new();
            split_profile(text, &mut parts).expect("a profile");
            parts.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let plain = r#" {"meta": {}, "threads": [], "x": null} "#;
        assert_eq!(parts(plain), [plain]);
        let of = |name: &str, processes: &str| {
            format!(r#"{{"meta": {{"x": "{name}"}}, "processes": [{processes}], "threads": []}}"#)
        };
        let nested = of("a", &[of("b", &of("c", "")), of("d", "")].join(", "));
        assert_eq!(
            parts(&nested),
            ["a", "b", "c", "d"].map(|name| of(name, ""))
        );
        assert!(error_of(&of("a", r#"{"meta": 1}"#)).contains(r#"no "meta""#));
        assert!(error_of("\u{1f}\u{8b}").contains("uncompressed"));
        assert!(error_of(r#"{"meta": {}, "threads": [}"#).contains("line 1"));
        assert!(error_of(r#"{"meta": {}, "threads": [], "cut": "#).contains("not JSON"));
        assert!(error_of(r#"[1, 2]"#).contains("not JSON"));
        assert!(error_of(r#"{"threads": []}"#).contains(r#"no "meta""#));
        assert!(error_of(r#"{"meta": {}, "threads": {}}"#).contains(r#"no "threads""#));
    }
}
