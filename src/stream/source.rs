//! What a profile is made from: a session as it was at one moment.

use std::sync::Arc;

use crate::base::{Page, ProcessId, TimeStamp};
use crate::buffer::BufferSnapshot;
use crate::platform::ProcessStart;
use crate::state::{OpenPauses, Session};
use crate::threads::OffThreadRef;
use crate::unwind::{CodeMap, ModuleTable};

/// A session, frozen: it can be streamed any number of times, while the session goes on or after it has ended.
#[derive(Clone, Debug)]
pub(crate) struct ProfileSource {
    pub(crate) process: ProcessId,
    pub(crate) product: String,
    pub(crate) process_name: String,
    pub(crate) etld1: Option<String>,
    pub(crate) pages: Vec<Arc<Page>>,
    /// Profiles of children, as they are.
    pub(crate) exit_profiles: Vec<Arc<str>>,
    pub(crate) process_start: ProcessStart,
    pub(crate) session: Arc<Session>,
    /// The counts of the session at this moment, by name.
    pub(crate) counts: Vec<(&'static str, u64)>,
    pub(crate) taken_at: TimeStamp,
    /// What is earlier stays out of what is written, if anybody asked for that.
    pub(crate) since: Option<TimeStamp>,
    pub(crate) threads: Vec<OffThreadRef>,
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

    /// What is earlier than this, in nanoseconds since the process began, stays out of the profile: it is longer ago than
    /// the session's duration, or before what was asked for.
    pub(crate) fn cut_ns(&self) -> u64 {
        let duration = self
            .session
            .settings
            .duration
            .map(|duration| duration.as_nanos());
        let duration_ns = duration.map_or(u64::MAX, |ns| ns.try_into().unwrap_or(u64::MAX));
        let duration_cut_ns = self
            .ns_since_start(self.taken_at)
            .saturating_sub(duration_ns);
        duration_cut_ns.max(self.since.map_or(0, |since| self.ns_since_start(since)))
    }

    /// From when on nothing is missing, if something of the session is: the buffer was full, or it is before the cut. Of what was
    /// before, the buffer may hold some still. Nothing is from after the profile was taken.
    pub(crate) fn earliest_ns_after_loss(&self) -> Option<u64> {
        let cut_ns = self.cut_ns().min(self.ns_since_start(self.taken_at));
        let is_cut = cut_ns > self.ns_since_start(self.session.started_at);
        let of_buffer = self
            .buffer
            .complete_since()
            .map(|time| self.ns_since_start(time));
        of_buffer.max(is_cut.then_some(cut_ns))
    }
}
