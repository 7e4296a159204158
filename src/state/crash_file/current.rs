//! The facts of the running session, for code that has no session at hand: what is new on a thread
//! of the application.

use std::sync::Arc;

use crate::markers::{MarkerType, set_new_type_hook};
use crate::state::crash_file::crash_facts::CrashFacts;
use crate::types::set_new_category_hook;
use crate::unwind::{GeneratedCode, set_new_code_hook};
use crate::util::{Guard, LockRank, NamedMutex, is_any_lock_held_on_current_thread};

/// The facts of the running session, if it has a crash file.
pub(crate) type CurrentFacts = Option<Arc<CrashFacts>>;

static CURRENT: NamedMutex<CurrentFacts> =
    NamedMutex::new("crash facts", LockRank::CrashFacts, None);

/// Makes these the facts of the running session; `None` at its end.
pub(crate) fn set_current_facts(facts: CurrentFacts) {
    if facts.is_some() {
        set_new_type_hook(note_marker_type);
        set_new_category_hook(note_category);
        set_new_code_hook(note_code);
    }
    // Dropped after the lock is released.
    let _before = std::mem::replace(&mut *CURRENT.lock(), facts);
}

/// Locks the facts while the process forks.
pub(crate) fn hold_crash_facts_for_fork() -> Guard<'static, CurrentFacts> {
    CURRENT.lock()
}

/// Returns the facts, unless the calling thread holds a lock: then the caller is code of the
/// application that the profiler has called.
fn current() -> CurrentFacts {
    match is_any_lock_held_on_current_thread() {
        true => None,
        false => CURRENT.lock().clone(),
    }
}

/// Adds a type of markers, before its first marker.
fn note_marker_type(marker_type: &'static MarkerType) {
    if let Some(facts) = current() {
        facts.add_marker_type(marker_type);
    }
}

/// Adds a category, before it is used. Without a lock to hand, the sampler adds it on its next tick.
fn note_category() {
    if let Some(facts) = current() {
        facts.add_new_categories();
    }
}

fn note_code(code: &GeneratedCode) {
    if let Some(facts) = current() {
        facts.add_code(code);
    }
}
