//! Registers threads, and records markers, their stacks, and announced sleep. Takes stacks on demand.

mod allocations;
mod heap_snapshot;
mod stacks;

use std::cell::Cell;
use std::fmt;
use std::time::Duration;

use crate::backtrace::{BacktraceParts, CapturedBacktrace, add_pending_stack, count_lost_stack};
use crate::buffer::Dropped;
use crate::markers::{
    Awake, BorrowedFileIO, FileIO, MarkerDestination, MarkerEntry, MarkerPhase, MarkerTiming,
    NewMarker, NewPayload, NoPayload, ProfilerMarker, TextPayload, TypedPayload,
};
use crate::platform::{current_processor, current_thread_cpu_ns_in_handler, monotonic_now};
use crate::session::{
    self, Cause, LongInterval, WrittenDump, ensure_fork_handlers, is_current_thread,
    is_long_interval, permit_dump, register_if_recorded,
};
use crate::state::{CorePs, RacyFeatures, choose_marker, core_buffer, find_thread, put_entry};
use crate::threads::{OnThreadRef, unregister_current_thread};
use crate::types::{
    DumpError, Features, Generation, ProfilerTime, ProfilingCategoryPair, StackFeatures, ThreadId,
    ThreadProfilingFeatures, TimeStamp,
};
use crate::util::is_any_lock_held_on_current_thread;

pub(crate) use crate::platform::current_stack_pointer as stack_pointer;
pub(crate) use allocations::{sample_allocation, sample_free, sample_move, undo_free};
pub(crate) use heap_snapshot::heap_snapshot;
pub(crate) use stacks::{capture_backtrace, resolve_backtrace, suspend_and_sample};

pub(crate) fn now() -> ProfilerTime {
    ProfilerTime::from_monotonic_ns(monotonic_now().0)
}

/// Registers the calling thread.
///
/// Does nothing when called from inside the profiler's own work, for example by the application's
/// allocator.
pub(crate) fn register_thread(name: &str) {
    if !is_any_lock_held_on_current_thread() {
        ensure_fork_handlers();
        session::register_thread(name);
    }
}

/// Unregisters the calling thread. Does nothing when called from inside the profiler's own work.
pub(crate) fn unregister_thread() {
    if !is_any_lock_held_on_current_thread() {
        unregister_current_thread();
    }
}

/// Announces that the calling thread is about to sleep, if `sleeps`, or else is awake again. Adds
/// the end or the start of the thread's `Awake` marker. Does nothing if the thread has already
/// announced the same state.
pub(crate) fn announce_sleep(sleeps: bool) {
    if is_announced_asleep() == sleeps {
        return;
    }
    let announce = |thread: OnThreadRef<'_>| {
        thread
            .unlocked_reader_and_atomic_rw_on_thread()
            .announce(sleeps);
    };
    // The marker is added while the thread still counts as awake: the sampler only repeats the last
    // sample of a thread that is announced as asleep.
    if sleeps {
        add_awake_marker_end();
        OnThreadRef::with(announce);
    } else if OnThreadRef::with(announce).is_some() {
        add_awake_marker_start();
    }
}

thread_local! {
    /// The thread's CPU clock at the start of its open `Awake` marker, and the session that records
    /// the marker.
    static AWAKE_SINCE: Cell<Option<(Generation, u64)>> = const { Cell::new(None) };
}

#[doc(alias = "profiler_mark_thread_awake")]
fn add_awake_marker_start() {
    let timing = MarkerTiming::interval_start(now());
    let started = add_awake_marker(&timing, |session| {
        AWAKE_SINCE.set(Some((session, current_thread_cpu_ns_in_handler())));
        Awake {
            cpu_time_ns: None,
            cpu_id: current_processor(),
        }
    });
    if started.is_none() {
        AWAKE_SINCE.set(None);
    }
}

#[doc(alias = "profiler_mark_thread_asleep")]
fn add_awake_marker_end() {
    let since = AWAKE_SINCE.take();
    add_awake_marker(&MarkerTiming::interval_end(now()), |session| Awake {
        // `None` if this session did not record the start, for example because the thread woke
        // before the session began.
        cpu_time_ns: since
            .filter(|(since_session, _)| *since_session == session)
            .map(|(_, cpu_ns)| current_thread_cpu_ns_in_handler().saturating_sub(cpu_ns)),
        cpu_id: None,
    });
}

/// Adds an `Awake` marker for the calling thread if a session records it.
fn add_awake_marker(timing: &MarkerTiming, marker: impl FnOnce(Generation) -> Awake) -> Option<()> {
    let destination = find_destination(None, timing.thread)?;
    let marker = marker(destination.session);
    let new = NewMarker {
        name: "Awake",
        category: ProfilingCategoryPair::Other(None).indices().0,
        timing,
        stack: 0,
    };
    (&marker).put(&destination, &new);
    Some(())
}

/// Returns whether the calling thread has announced that it sleeps.
pub(crate) fn is_announced_asleep() -> bool {
    let is_asleep = |thread: OnThreadRef<'_>| {
        thread
            .unlocked_reader_and_atomic_rw_on_thread()
            .announced_sleep()
            .is_some()
    };
    OnThreadRef::with(is_asleep).unwrap_or(false)
}

/// Returns the session, thread registration and time for a marker of `thread`. Returns `None` if no
/// session records that thread's markers, or if `only` is not the running session.
pub(crate) fn marker_destination(
    only: Option<Generation>,
    thread: ThreadId,
) -> Option<MarkerDestination> {
    find_destination(only, thread)
}

/// Returns the session that records markers of `thread`, even if the session is paused.
pub(crate) fn session_that_records_markers(thread: ThreadId) -> Option<Generation> {
    if !RacyFeatures::is_active() {
        return None;
    }
    recorded_thread(thread).map(|(session, _)| session)
}

/// Returns the session that runs now, paused or not. It may have ended when this returns.
pub(crate) fn running_session() -> Option<Generation> {
    core_buffer().session()
}

/// Returns the session that records markers of a thread, and the serial number of the thread's
/// registration.
#[inline]
fn recorded_thread(thread: ThreadId) -> Option<(Generation, u64)> {
    if !is_current_thread(thread) {
        return recorded_other_thread(thread);
    }
    let recorded = |thread: OnThreadRef<'_>| {
        let thread = thread.unlocked_reader_and_atomic_rw_on_thread();
        let session = thread.begin_entry(ThreadProfilingFeatures::MARKERS)?;
        Some((session, thread.info().serial))
    };
    OnThreadRef::with(recorded).unwrap_or_else(|| {
        register_if_recorded();
        OnThreadRef::with(recorded)?
    })
}

#[cold]
fn recorded_other_thread(thread: ThreadId) -> Option<(Generation, u64)> {
    // Inside the profiler's own work, this thread may already hold the registry's lock.
    if is_any_lock_held_on_current_thread() {
        core_buffer().count_dropped(Dropped::Reentrant);
        return None;
    }
    let thread = find_thread(thread)?;
    let session = thread
        .unlocked_const_reader_and_atomic_rw()
        .begin_entry(ThreadProfilingFeatures::MARKERS)?;
    Some((session, thread.serial()))
}

#[inline(always)]
fn find_destination(only: Option<Generation>, thread: ThreadId) -> Option<MarkerDestination> {
    let since = RacyFeatures::recording()?;
    let now = monotonic_now();
    // Checked again: if a pause has begun since the first check, `now` may lie inside it, even if
    // the pause has ended. A time that the application provides is not checked and may lie inside a
    // pause.
    if !RacyFeatures::still_records(since) {
        return None;
    }
    let (session, thread) = recorded_thread(thread)?;
    if only.is_some_and(|only| only != session) {
        return None;
    }
    // A held lock means that the call comes from inside the profiler's own work: from the
    // application's allocator or a signal handler.
    if is_any_lock_held_on_current_thread() {
        core_buffer().count_dropped(Dropped::Reentrant);
        return None;
    }
    Some(MarkerDestination {
        session,
        thread,
        now,
        rarity: None,
    })
}

/// Returns the destination of a marker, like [`marker_destination`], or `None` if the marker is left
/// out: before its stack is captured, or its payload is made.
pub(crate) fn chosen_destination(
    only: Option<Generation>,
    name: &str,
    timing: &MarkerTiming,
) -> Option<MarkerDestination> {
    chosen(&find_destination(only, timing.thread)?, name, timing)
}

/// Decides whether the limit of markers allows this one, unless that is decided. Returns its
/// destination, or `None` if it is left out.
#[inline(always)]
pub(crate) fn chosen(
    destination: &MarkerDestination,
    name: &str,
    timing: &MarkerTiming,
) -> Option<MarkerDestination> {
    let is_whole = matches!(timing.phase, MarkerPhase::Instant | MarkerPhase::Interval);
    let rarity = match destination.rarity {
        Some(rarity) => rarity,
        // The two halves of an interval have to stay together.
        None if !is_whole => 0,
        None => {
            let ns = interval_ns(destination, timing).unwrap_or(0);
            match is_long_interval(ns) {
                // The dump that it causes is about it.
                true => 0,
                false => choose_marker(name, destination.thread, destination.now, ns)?,
            }
        }
    };
    Some(MarkerDestination {
        rarity: Some(rarity),
        ..*destination
    })
}

/// Returns the time that was read when the destination was found: the end of an interval that ends
/// now.
pub(crate) fn destination_time(destination: &MarkerDestination) -> ProfilerTime {
    ProfilerTime::from_monotonic_ns(destination.now.0)
}

/// The payload of a marker, as the API passes it: a text or none, or a typed payload.
///
/// The first two functions are not inlined, so that they add little code to the application's
/// functions. Those for texts are compiled once.
pub(crate) trait MarkerPayload: Copy {
    /// Adds a marker for the calling thread and the current time, without a stack, if a session
    /// records it. The caller computes the index of the category, because it is a constant there if
    /// the category is one.
    fn add_now(self, name: &str, category: u8);

    /// Adds a marker for any thread and time, if a session records it. With `only`, adds it only to
    /// that session.
    fn add(self, only: Option<Generation>, marker: &NewMarker<'_>);

    /// Adds a marker at a destination returned by [`marker_destination`].
    fn put(self, destination: &MarkerDestination, marker: &NewMarker<'_>);
}

impl MarkerPayload for Option<&str> {
    #[inline(never)]
    fn add_now(self, name: &str, category: u8) {
        match self {
            Some(text) => add_now(name, category, || TextPayload(text)),
            None => add_now(name, category, || NoPayload),
        }
    }

    #[inline(never)]
    fn add(self, only: Option<Generation>, marker: &NewMarker<'_>) {
        match self {
            Some(text) => add(only, marker, || TextPayload(text)),
            None => add(only, marker, || NoPayload),
        }
    }

    fn put(self, destination: &MarkerDestination, marker: &NewMarker<'_>) {
        match self {
            Some(text) => put(destination, marker, TextPayload(text)),
            None => put(destination, marker, NoPayload),
        }
    }
}

impl<T: ProfilerMarker + 'static> MarkerPayload for &T {
    #[inline(never)]
    fn add_now(self, name: &str, category: u8) {
        add_now(name, category, || TypedPayload::new(self));
    }

    #[inline(never)]
    fn add(self, only: Option<Generation>, marker: &NewMarker<'_>) {
        add(only, marker, || TypedPayload::new(self));
    }

    fn put(self, destination: &MarkerDestination, marker: &NewMarker<'_>) {
        put(destination, marker, TypedPayload::new(self));
    }
}

#[inline(always)]
fn add_now<P: NewPayload>(name: &str, category: u8, payload: impl FnOnce() -> P) {
    let marker = NewMarker {
        name,
        category,
        timing: &MarkerTiming::instant_now(),
        stack: 0,
    };
    add(None, &marker, payload);
}

#[inline(always)]
fn add<P: NewPayload>(
    only: Option<Generation>,
    marker: &NewMarker<'_>,
    payload: impl FnOnce() -> P,
) {
    if let Some(destination) = find_destination(only, marker.timing.thread) {
        put(&destination, marker, payload());
    }
}

/// Adds the marker of a file operation: see [`MarkerPayload::put`].
pub(crate) fn put_file_io_marker(
    destination: &MarkerDestination,
    marker: &NewMarker<'_>,
    payload: &BorrowedFileIO<'_>,
) {
    put(
        destination,
        marker,
        TypedPayload::borrowed::<FileIO>(payload),
    );
}

#[inline(always)]
fn put(destination: &MarkerDestination, marker: &NewMarker<'_>, payload: impl NewPayload) {
    if let Some(chosen) = chosen(destination, marker.name, marker.timing) {
        let start = CorePs::process_start().monotonic;
        let entry = MarkerEntry::new(&chosen, start, marker, payload);
        put_entry(chosen.session, chosen.now, entry);
    }
    // After the marker is written, so that the dump has it.
    if let Some(ns) = interval_ns(destination, marker.timing)
        && is_long_interval(ns)
    {
        dump_for_interval(destination, marker, ns);
    }
}

/// Dumps because an interval with this name was longer than the settings allow. If that is refused,
/// the next dump has the number of such causes.
#[cold]
#[inline(never)]
fn dump_for_interval(destination: &MarkerDestination, marker: &NewMarker<'_>, ns: u64) {
    let (name, took) = (marker.name, Duration::from_nanos(ns).as_secs_f64());
    let end = marker
        .timing
        .end
        .map_or(destination.now, ProfilerTime::timestamp);
    // A refused dump allocates nothing.
    let cause = || {
        Cause::Interval(LongInterval {
            name: name.to_owned(),
            thread: destination.thread,
            start: TimeStamp(end.0.saturating_sub(ns)),
            end,
        })
    };
    let _ = dump_for(None, format_args!("{name} took {took:.3} s"), cause);
}

/// Starts a dump: see `profiler_dump`.
///
/// # Errors
/// See `profiler_dump`.
pub(crate) fn dump(
    last: Option<Duration>,
    reason: fmt::Arguments<'_>,
) -> Result<WrittenDump, DumpError> {
    dump_for(last, reason, || Cause::Other)
}

fn dump_for(
    last: Option<Duration>,
    reason: fmt::Arguments<'_>,
    cause: impl FnOnce() -> Cause,
) -> Result<WrittenDump, DumpError> {
    let permit = permit_dump(true)?;
    let reason = reason.to_string();
    // Before the dump, so that it has the marker.
    let timing = MarkerTiming::instant_now();
    if let Some(destination) = find_destination(None, timing.thread) {
        let destination = MarkerDestination {
            rarity: Some(0),
            ..destination
        };
        let marker = NewMarker {
            name: "Dump",
            category: ProfilingCategoryPair::Profiler(None).indices().0,
            timing: &timing,
            stack: 0,
        };
        Some(&*permit.whole_reason(&reason)).put(&destination, &marker);
    }
    permit.write(last, &reason, cause())
}

/// Returns the length of an interval, in ns; `None` unless the marker is an interval.
#[inline(always)]
fn interval_ns(destination: &MarkerDestination, timing: &MarkerTiming) -> Option<u64> {
    if timing.phase != MarkerPhase::Interval {
        return None;
    }
    let end = timing.end.map_or(destination.now, ProfilerTime::timestamp);
    Some(end.since_ns(timing.start?.timestamp()))
}

/// Copies the stack of the function that this one is inlined into, for a marker. Returns the
/// stack's number, or 0 if none was recorded.
#[inline(always)]
pub(crate) fn record_own_stack(destination: &MarkerDestination, features: StackFeatures) -> u64 {
    let parts = match features.contains(StackFeatures::NATIVE) {
        true => BacktraceParts::LabelsAndStack,
        false => BacktraceParts::Labels,
    };
    if !records_stacks() {
        return 0;
    }
    add_stack(
        destination.session,
        CapturedBacktrace::capture_here(parts),
        features,
    )
}

/// Passes a stack that was captured earlier to the running session, and returns the stack's number,
/// or 0 if the stack was not recorded.
pub(crate) fn record_backtrace(backtrace: &CapturedBacktrace) -> u64 {
    if !records_stacks() || is_any_lock_held_on_current_thread() {
        return 0;
    }
    match core_buffer().session() {
        Some(session) => add_stack(session, backtrace.copy(), StackFeatures::FULL),
        None => 0,
    }
}

/// Passes return addresses to the running session, innermost first, and returns the number of their
/// stack, or 0 if none was recorded.
pub(crate) fn record_return_addresses(addresses: &[u64]) -> u64 {
    if addresses.is_empty() || !records_stacks() || is_any_lock_held_on_current_thread() {
        return 0;
    }
    let backtrace = || CapturedBacktrace::of_return_addresses(addresses);
    core_buffer().session().map_or(0, |session| {
        add_stack(session, backtrace(), StackFeatures::FULL)
    })
}

fn records_stacks() -> bool {
    RacyFeatures::features_if_active_and_unpaused()
        .is_some_and(|features| !features.contains(Features::NO_MARKER_STACKS))
}

fn add_stack(
    session: Generation,
    backtrace: Option<CapturedBacktrace>,
    features: StackFeatures,
) -> u64 {
    match backtrace {
        Some(backtrace) => add_pending_stack(backtrace, session, features),
        None => {
            count_lost_stack();
            0
        }
    }
}
