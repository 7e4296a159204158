//! The data from which a profile is made: a session at one moment.

use std::sync::Arc;

use crate::buffer::BufferSnapshot;
use crate::counters::{CounterDescription, CounterReading, KnownCounter};
use crate::labels::script_function;
use crate::platform::ProcessStart;
use crate::state::{ChildProfile, OpenPauses, OverheadStats, Session};
use crate::stream::children::FrozenChildren;
use crate::stream::decode::past_process::PastProcess;
use crate::stream::decode::rows::CounterRows;
use crate::threads::OffThreadRef;
use crate::types::{
    CategoryInfo, Page, ProcessId, ScriptDescription, ThreadId, TimeStamp, all_categories,
};
use crate::unwind::{ModuleTable, NamedCode};

/// A frozen session. It can be streamed any number of times, even after the session has ended.
#[derive(Clone, Debug)]
pub(crate) struct ProfileSource {
    pub(crate) process: ProcessId,
    pub(crate) product: String,
    pub(crate) version: Option<String>,
    pub(crate) process_name: String,
    pub(crate) process_type: String,
    pub(crate) etld1: Option<String>,
    pub(crate) pages: Vec<Arc<Page>>,
    /// Profiles of child processes that have exited.
    pub(crate) exit_profiles: Vec<ChildProfile>,
    /// Child processes that ran when the profile was taken.
    pub(crate) children: Option<Arc<dyn FrozenChildren>>,
    /// The earliest start of a session and the latest end of a profile among these children.
    pub(crate) children_times: Option<(TimeStamp, TimeStamp)>,
    pub(crate) process_start: ProcessStart,
    pub(crate) session: Arc<Session>,
    /// The session's counts at this moment, by name.
    pub(crate) counts: Vec<(&'static str, u64)>,
    /// The statistics of the sampler's ticks at this moment.
    pub(crate) overheads: OverheadStats,
    pub(crate) taken_at: TimeStamp,
    /// Whether the profiler is shutting down, so that this is the process's last profile.
    pub(crate) is_shutting_down: bool,
    /// Whether another program image is about to replace this one in the same process. The viewer
    /// shows one main thread for each process, which is the one of the last image.
    pub(crate) is_replaced: bool,
    /// Start of the profile, if the caller requested one: earlier data is left out.
    pub(crate) since: Option<TimeStamp>,
    pub(crate) threads: Vec<OffThreadRef>,
    /// Time from which on no ended thread with entries is missing, if the session dropped one.
    pub(crate) threads_complete_since: Option<TimeStamp>,
    /// The filters that have selected no thread of the session.
    pub(crate) unmatched_filters: Vec<String>,
    /// The registered threads that the filters do not select: their ids and names.
    pub(crate) unselected_threads: Vec<(ThreadId, String)>,
    pub(crate) buffer: BufferSnapshot,
    /// The pauses that were open when the profile was taken.
    pub(crate) open_pauses: OpenPauses,
    pub(crate) modules: ModuleTable,
    pub(crate) generated_code: NamedCode,
    /// The counters whose values the buffer may hold.
    pub(crate) counters: Vec<KnownCounter>,
    /// Facts about the process, if it is another process that has ended.
    pub(crate) past: Option<Arc<PastProcess>>,
}

impl ProfileSource {
    /// Returns the start and the end of the time that the profile covers, with the times of children:
    /// the viewer shows no data outside of it.
    pub(crate) fn profiling_times(&self) -> (TimeStamp, TimeStamp) {
        let (start, end) = (self.session.started_at, self.taken_at);
        let running = self.children_times.unwrap_or((start, end));
        let exited = self.exit_profiles.iter().filter_map(|child| {
            let epoch_ms = child.epoch_ms()?;
            Some((self.time_of(epoch_ms.start), self.time_of(epoch_ms.end)))
        });
        exited.fold(
            (start.min(running.0), end.max(running.1)),
            |(start, end), times| (start.min(times.0), end.max(times.1)),
        )
    }

    /// Returns the time that another process has told, in milliseconds since 1970, within the life of
    /// this process.
    fn time_of(&self, epoch_ms: f64) -> TimeStamp {
        let start = &self.process_start;
        let since_start_ns = ((epoch_ms - start.epoch_ms) * 1e6) as u64;
        let since_start_ns = since_start_ns.min(self.ns_since_start(self.taken_at));
        start.monotonic.plus_ns(since_start_ns)
    }

    /// Returns all categories that labels and markers may use.
    pub(super) fn categories(&self) -> Vec<&'static CategoryInfo> {
        match &self.past {
            Some(past) => past.categories.clone(),
            None => all_categories(),
        }
    }

    /// Returns the script function with this number.
    pub(crate) fn script(&self, number: u32) -> Option<ScriptDescription<'_>> {
        match &self.past {
            Some(past) => past.script(number),
            None => script_function(number).map(|function| function.description),
        }
    }

    /// Returns the count of the session's with this name.
    pub(crate) fn count(&self, name: &str) -> u64 {
        let mut counts = self.counts.iter();
        counts
            .find(|(known, _)| *known == name)
            .map_or(0, |count| count.1)
    }

    /// Returns nanoseconds since the process began, the unit and origin of every time in a profile.
    pub(crate) fn ns_since_start(&self, time: TimeStamp) -> u64 {
        time.since_ns(self.process_start.monotonic)
    }

    /// Returns the time before which data is left out of the profile, in ns since the process
    /// began. Such data is older than the session's duration, or earlier than the requested start.
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

    /// Returns the time since which the profile is complete, in ns since the process began, or
    /// `None` if it has all data of the session. Before that time, data is missing because the
    /// buffer was full, because ended threads were dropped, or because of the cut. The result is
    /// never later than the time at which the profile was taken.
    pub(crate) fn earliest_ns_after_loss(&self) -> Option<u64> {
        let taken_ns = self.ns_since_start(self.taken_at);
        let of_threads = self
            .threads_complete_since
            .map(|time| self.ns_since_start(time).min(taken_ns));
        self.earliest_ns_of_process().max(of_threads)
    }

    /// Returns the times of a counter's rows, with the growth since the row before. Growth before the
    /// oldest remaining row belongs to no row.
    pub(crate) fn counter_rows(
        &self,
        counter: &CounterDescription,
        rows: &CounterRows,
    ) -> impl Iterator<Item = (u64, CounterReading)> {
        let begins_late = self.earliest_ns_of_process().is_some() && !counter.is_level();
        rows.deltas()
            .enumerate()
            .map(move |(index, (time_ns, growth))| match index {
                0 if begins_late => (time_ns, CounterReading::default()),
                _ => (time_ns, growth),
            })
    }

    /// Returns the time since which the profile has all data of the process and of the threads that
    /// it lists: see [`Self::earliest_ns_after_loss`].
    pub(crate) fn earliest_ns_of_process(&self) -> Option<u64> {
        let cut_ns = self.cut_ns().min(self.ns_since_start(self.taken_at));
        let is_cut = cut_ns > self.ns_since_start(self.session.started_at);
        let of_buffer = self
            .buffer
            .complete_since()
            .map(|time| self.ns_since_start(time));
        of_buffer.max(is_cut.then_some(cut_ns))
    }
}
