//! What a profile is made from: a session as it was at one moment.

use std::sync::Arc;

use crate::base::{ProcessId, TimeStamp};
use crate::buffer::BufferSnapshot;
use crate::platform::ProcessStart;
use crate::state::{OpenPauses, Session};
use crate::threads::ThreadRegistration;
use crate::unwind::{CodeMap, ModuleTable};

/// A session, frozen: it can be streamed any number of times, while the session goes on or after it has ended.
#[derive(Clone, Debug)]
pub(crate) struct ProfileSource {
    pub(crate) process: ProcessId,
    pub(crate) process_name: String,
    pub(crate) process_start: ProcessStart,
    pub(crate) session: Arc<Session>,
    /// The counts of the session at this moment, by name.
    pub(crate) counts: Vec<(&'static str, u64)>,
    pub(crate) taken_at: TimeStamp,
    pub(crate) threads: Vec<Arc<ThreadRegistration>>,
    pub(crate) buffer: BufferSnapshot,
    /// The pauses that it was taken in.
    pub(crate) open_pauses: OpenPauses,
    pub(crate) modules: ModuleTable,
    pub(crate) generated_code: CodeMap,
}

impl ProfileSource {
    /// Nanoseconds since the process began, the unit and origin of every time in a profile.
    pub(crate) fn ns_since_start(&self, time: TimeStamp) -> u64 {
        time.since_ns(self.process_start.monotonic)
    }
}
