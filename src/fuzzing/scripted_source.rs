//! Creates the source of a profile from a buffer, with scripted threads that never ran.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::buffer::BufferSnapshot;
use crate::counters::{KnownCounter, PROCESS_CPU};
use crate::platform::ProcessStart;
use crate::state::{OpenPauses, Session, SessionSettings};
use crate::stream::ProfileSource;
use crate::threads::{MAIN_THREAD_NAME, OffThreadRef};
use crate::types::{ProcessId, TimeStamp};
use crate::unwind::{ModuleTable, NamedCode};

pub(crate) const PROCESS_START: TimeStamp = TimeStamp(1_000);

/// Time at which the profiles are taken, later than any cut.
const TAKEN_AT: TimeStamp = PROCESS_START.plus_ns(1 << 33);

/// Serial numbers of the threads; the last thread has ended.
pub(crate) const SERIALS: [u64; 3] = [1, 2, 3];

const ENDED_AT: TimeStamp = PROCESS_START.plus_ns(1_000_000);

fn threads() -> &'static [OffThreadRef] {
    static THREADS: OnceLock<Vec<OffThreadRef>> = OnceLock::new();
    let [main, other, ended] = SERIALS;
    THREADS.get_or_init(|| {
        vec![
            OffThreadRef::scripted(main, MAIN_THREAD_NAME, true, None),
            OffThreadRef::scripted(other, "other", false, None),
            OffThreadRef::scripted(ended, "ended", false, Some(ENDED_AT)),
        ]
    })
}

/// Returns the source of a profile of `buffer`. `kept_ns` is the session's duration limit: older
/// data is left out.
pub(crate) fn scripted_source(buffer: BufferSnapshot, kept_ns: Option<u64>) -> ProfileSource {
    let settings = SessionSettings {
        duration: kept_ns.map(Duration::from_nanos),
        records_overheads: true,
        has_children: false,
        ..SessionSettings::for_tests()
    };
    let session = Session::new(settings, PROCESS_START, PROCESS_START, vec![&PROCESS_CPU]);
    ProfileSource {
        process: ProcessId::from_number(1),
        product: "fuzzed".to_owned(),
        version: None,
        process_name: "fuzzed".to_owned(),
        process_type: "default".to_owned(),
        etld1: None,
        pages: Vec::new(),
        exit_profiles: Vec::new(),
        children: None,
        children_times: None,
        process_start: ProcessStart {
            monotonic: PROCESS_START,
            epoch_ms: 1.7e12,
            is_known: true,
        },
        counts: session.counts.all(),
        overheads: session.overheads.read(),
        session: Arc::new(session),
        taken_at: TAKEN_AT,
        is_shutting_down: false,
        is_replaced: false,
        since: None,
        threads: threads().to_vec(),
        threads_complete_since: None,
        unmatched_filters: Vec::new(),
        unselected_threads: Vec::new(),
        buffer,
        open_pauses: OpenPauses::default(),
        modules: ModuleTable::default(),
        generated_code: NamedCode::default(),
        counters: vec![KnownCounter::Own(&PROCESS_CPU)],
        past: None,
    }
}

/// Returns the duration from `cut_ns` after the process start to the time at which the profile is
/// taken.
pub(crate) fn kept_ns_since(cut_ns: u64) -> u64 {
    TAKEN_AT.since_ns(PROCESS_START) - cut_ns
}
