//! Dumps that a thread of the profiler causes, with a marker on the track that the cause belongs
//! to.

use std::time::Duration;

use crate::markers::{MarkerDestination, MarkerEntry, MarkerTiming, NewMarker, TextPayload};
use crate::platform::{main_thread_id, monotonic_now};
use crate::session::dumps::{Cause, WrittenDump, permit_dump_for};
use crate::state::{CorePs, RacyFeatures, find_thread, put_entry};
use crate::threads::{OffThreadRef, ThreadRegistry};
use crate::types::{DumpError, ProfilingCategoryPair, ThreadProfilingFeatures};
use crate::util::PsLock;

/// Dumps, with a marker on the main thread's track; if the session does not record that, on the
/// track of the first registered thread that it records. `counts` is whether a refusal counts as
/// one.
///
/// # Errors
/// Those of `permit_dump`, and [`DumpError::System`].
pub(super) fn dump_on_main_track(reason: &str, counts: bool) -> Result<WrittenDump, DumpError> {
    let permit = permit_dump_for(counts)?;
    if let Some(thread) = main_track() {
        add_dump_marker(&thread, &permit.whole_reason(reason));
    }
    permit.write(None, reason, Cause::Other)
}

/// Dumps because of a thread, with a marker on its track. `lasted_ns` is how long the cause has
/// lasted: the dump has all of it.
///
/// # Errors
/// See [`dump_on_main_track`].
pub(super) fn dump_on_track(
    thread: &OffThreadRef,
    reason: impl FnOnce() -> String,
    lasted_ns: u64,
) -> Result<WrittenDump, DumpError> {
    let permit = permit_dump_for(true)?;
    let reason = reason();
    add_dump_marker(thread, &permit.whole_reason(&reason));
    permit.write(
        None,
        &reason,
        Cause::Lasting(Duration::from_nanos(lasted_ns)),
    )
}

fn main_track() -> Option<OffThreadRef> {
    let main = find_thread(main_thread_id());
    main.filter(is_recorded).or_else(|| {
        let mut first: Option<OffThreadRef> = None;
        ThreadRegistry::for_each(&PsLock::acquire(), |thread| {
            let is_earlier = |first: &OffThreadRef| thread.serial() < first.serial();
            if is_recorded(thread) && first.as_ref().is_none_or(is_earlier) {
                first = Some(thread.clone());
            }
        });
        first
    })
}

fn is_recorded(thread: &OffThreadRef) -> bool {
    let thread = thread.unlocked_const_reader_and_atomic_rw();
    let features = thread.profiling_features();
    features.intersects(ThreadProfilingFeatures::MARKERS)
}

/// Adds the marker, if the session records the thread's.
fn add_dump_marker(thread: &OffThreadRef, reason: &str) {
    let Some(since) = RacyFeatures::recording() else {
        return;
    };
    let now = monotonic_now();
    let reader = thread.unlocked_const_reader_and_atomic_rw();
    let session = reader.begin_entry(ThreadProfilingFeatures::MARKERS);
    let Some(session) = session.filter(|_| RacyFeatures::still_records(since)) else {
        return;
    };
    let destination = MarkerDestination {
        session,
        thread: thread.serial(),
        now,
        rarity: None,
    };
    let marker = NewMarker {
        name: "Dump",
        category: ProfilingCategoryPair::Profiler(None).indices().0,
        timing: &MarkerTiming::instant_now(),
        stack: 0,
    };
    let process_start = CorePs::process_start().monotonic;
    let entry = MarkerEntry::new(&destination, process_start, &marker, TextPayload(reason));
    put_entry(session, now, entry);
}
