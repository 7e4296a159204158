//! Step 10 of 12: takes a snapshot of the session for a profile. `frozen_profile.rs` writes it.

use std::sync::Arc;

use crate::allocations::dropped_allocations;
use crate::backtrace::lost_stacks;
use crate::counters::{KnownCounter, for_each_application_counter};
use crate::platform::{current_process_id, monotonic_now};
use crate::session::family::family;
use crate::session::running::{notify, running_session};
use crate::state::{ACTIVE_PS, CORE_PS, Session, core_buffer};
use crate::stream::ProfileSource;
use crate::threads::{OffThreadRef, ThreadRegistry};
use crate::types::{Generation, ProfilingState, ThreadId};
use crate::unwind::{ModuleTable, NamedCode, lost_code_names};
use crate::util::{PsCell, PsLock, SharedSort, is_any_lock_held_on_current_thread};

/// A snapshot of a session. Writing it does not access the running session.
#[derive(Clone, Debug)]
pub(crate) struct FrozenProfile {
    pub(crate) source: ProfileSource,
}

/// Takes a snapshot of the running session. Returns `None` if no session is running, or if `only`
/// names another session.
///
/// Holds the `PsLock` while it clones lists. Chunks are shared, not copied.
pub(crate) fn freeze(only: Option<Generation>) -> Option<FrozenProfile> {
    if is_any_lock_held_on_current_thread() {
        return None;
    }
    running_session().filter(|(running, _)| is_asked_for(only, *running))?;
    notify(ProfilingState::GeneratingProfile);
    freeze_unnoticed(only)
}

fn is_asked_for(only: Option<Generation>, running: Generation) -> bool {
    only.is_none_or(|only| only == running)
}

/// Works like [`freeze`], but calls no state-change callback: a callback of the application may
/// wait for the thread on which the process ends.
pub(crate) fn freeze_unnoticed(only: Option<Generation>) -> Option<FrozenProfile> {
    let mut frozen = freeze_own(only)?;
    let source = &mut frozen.source;
    source.children =
        family().and_then(|it| it.freeze_children(source.session.generation, source.taken_at));
    Some(frozen)
}

/// Takes a snapshot without the profiles of running children.
fn freeze_own(only: Option<Generation>) -> Option<FrozenProfile> {
    if is_any_lock_held_on_current_thread() {
        return None;
    }
    let (generation, session) =
        running_session().filter(|(running, _)| is_asked_for(only, *running))?;
    // Waits without the lock, because the sampler needs the lock to proceed.
    session.wait_for_flush();
    let taken_at = monotonic_now();
    // Declared before the lock, so that it is dropped after the lock is released.
    let _expired;
    let mut source = {
        let lock = PsLock::acquire();
        // Checked again, because the sampler has flushed the data of this session only.
        let active = ACTIVE_PS
            .get(&lock)
            .as_ref()
            .filter(|active| active.generation() == generation)?;
        let core = CORE_PS.get(&lock).as_ref()?;
        // Read before the snapshot of the buffer, so that no thread with data in that snapshot is
        // dropped.
        let buffer_start = core_buffer().range().start;
        _expired = active.take_expired(taken_at, &lock);
        let threads = active.threads.borrow();
        let (ended_pages, exit_profiles) =
            (active.ended_pages.borrow(), active.exit_profiles.borrow());
        ProfileSource {
            process: current_process_id(),
            product: core.product.clone(),
            version: core.version.clone(),
            process_name: core.process_name.clone(),
            process_type: core.process_type.clone(),
            etld1: core.etld1.clone(),
            pages: core
                .pages
                .iter()
                .chain(ended_pages.since(buffer_start, taken_at))
                .cloned()
                .collect(),
            exit_profiles: exit_profiles
                .since(buffer_start, taken_at)
                .cloned()
                .collect(),
            children: None,
            children_times: None,
            process_start: core.process_start,
            threads: threads.all(),
            threads_complete_since: threads.complete_since,
            unmatched_filters: threads.unmatched_filters(),
            unselected_threads: unselected_threads(
                &session,
                |name, tid| threads.selects(name, tid),
                &lock,
            ),
            buffer: core_buffer().snapshot(),
            counts: session_counts(&session),
            overheads: session.overheads.read(),
            open_pauses: session.pauses.open(),
            taken_at: monotonic_now(),
            is_shutting_down: false,
            is_replaced: false,
            since: None,
            modules: ModuleTable::default(),
            generated_code: NamedCode::default(),
            counters: Vec::new(),
            past: None,
            session,
        }
    };
    // After the lock is released: these lists may be long.
    source.threads.shared_sort_by_key(OffThreadRef::serial);
    source.counters = known_counters(&source.session);
    source.modules = source.session.modules();
    source.generated_code = source.session.generated_code();
    Some(FrozenProfile { source })
}

/// Takes a snapshot of this session alone, without child processes. Calls no state-change callback.
pub(crate) fn freeze_process(only: Generation) -> Option<FrozenProfile> {
    let mut frozen = freeze_own(Some(only))?;
    frozen.source.exit_profiles.clear();
    Some(frozen)
}

/// Takes a snapshot of the running session for [`FrozenProfile::with_buffer`]. Returns the session,
/// and the serial number of the thread that the markers of allocations belong to: the main thread,
/// or any other if the session does not profile that.
pub(crate) fn freeze_for_heap(main: ThreadId) -> Option<(Arc<Session>, u64, FrozenProfile)> {
    /// Number of flushes to wait for the first list of threads.
    const MAX_ATTEMPTS: u32 = 20;
    let mut attempts = 0;
    let mut frozen = loop {
        let frozen = freeze_own(None)?;
        attempts += 1;
        if !frozen.source.threads.is_empty() || attempts >= MAX_ATTEMPTS {
            break frozen;
        }
    };
    let threads = &mut frozen.source.threads;
    let is_main =
        |thread: &OffThreadRef| thread.unlocked_const_reader_and_atomic_rw().tid() == main;
    let place = threads.iter().position(is_main).unwrap_or(0);
    threads.truncate(place + 1);
    threads.drain(..place.min(threads.len()));
    let serial = threads.first()?.serial();
    Some((Arc::clone(&frozen.source.session), serial, frozen))
}

/// Returns the counters whose values the buffer may hold.
fn known_counters(session: &Session) -> Vec<KnownCounter> {
    let own = session.counters.iter().copied().map(KnownCounter::Own);
    let found = session.found_counters().into_iter();
    let mut known: Vec<_> = own.chain(found.map(KnownCounter::Found)).collect();
    for_each_application_counter(|counter| {
        known.push(KnownCounter::Application(Arc::clone(counter)));
    });
    known
}

/// Returns the registered threads that the session's filters do not select.
fn unselected_threads(
    session: &Session,
    selects: impl Fn(&str, ThreadId) -> bool,
    lock: &PsLock,
) -> Vec<(ThreadId, String)> {
    let mut unselected = Vec::new();
    if !session.settings.filters.is_empty() {
        ThreadRegistry::for_each(lock, |thread| {
            let reader = thread.unlocked_const_reader_and_atomic_rw();
            let (tid, name) = (reader.tid(), reader.name());
            if !selects(&name, tid) {
                unselected.push((tid, name));
            }
        });
    }
    unselected
}

/// The profile of the last `ProfilerSession` that ended, for `profiler_shutdown` to save.
static KEPT: PsCell<Option<FrozenProfile>> = PsCell::new(None);

/// Keeps a profile for [`take_kept`]. It replaces an older one.
pub(crate) fn keep_for_shutdown(profile: Option<FrozenProfile>) {
    if profile.is_some() && !is_any_lock_held_on_current_thread() {
        // Dropped after the lock is released.
        let _older = std::mem::replace(KEPT.get_mut(&mut PsLock::acquire()), profile);
    }
}

/// Removes and returns the profile that was kept for the shutdown.
pub(crate) fn take_kept() -> Option<FrozenProfile> {
    KEPT.get_mut(&mut PsLock::acquire()).take()
}

/// Leaks the parent's profile in the child of a fork: the parent saves it.
pub(crate) fn forget_kept_in_child(lock: &mut PsLock) {
    std::mem::forget(KEPT.get_mut(lock).take());
}

/// Returns the sampler's counts, the number of marker stacks that were lost before the sampler
/// received them, and the number of names that generated code has lost.
fn session_counts(session: &Session) -> Vec<(&'static str, u64)> {
    let mut counts = session.counts.all();
    counts.push(("lost_marker_stacks", lost_stacks()));
    counts.push(("lost_code_names", lost_code_names()));
    counts.push(("dropped_allocations", dropped_allocations()));
    counts
}
