//! The data from which a profile is made: a session at one moment. A process that has ended has left
//! it in its crash file, and child processes that still run send their own while the profile is written.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use crate::buffer::{Block, BufferSnapshot, EntryKind};
use crate::counters::{CounterDescription, CounterReading, KnownCounter};
use crate::labels::script_function;
use crate::markers::{DecodedMarker, DescribedType};
use crate::platform::ProcessStart;
use crate::state::{ChildProfile, OpenPauses, OverheadStats, Session};
use crate::stream::decode::process_data::CounterRows;
use crate::threads::OffThreadRef;
use crate::types::{
    CategoryInfo, Page, ProcessId, ScriptDescription, Symbolicate, ThreadId, TimeStamp,
    all_categories,
};
use crate::unwind::{ModuleTable, NamedCode};
use crate::util::NumberMap;

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
        let duration = self.session.settings.duration.map(|time| time.as_nanos());
        let duration_ns = duration.map_or(u64::MAX, |ns| ns.try_into().unwrap_or(u64::MAX));
        let taken_ns = self.ns_since_start(self.taken_at);
        let duration_cut_ns = taken_ns.saturating_sub(duration_ns);
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
        let complete_since = self.buffer.complete_since;
        let of_buffer = complete_since.map(|time| self.ns_since_start(time));
        of_buffer.max(is_cut.then_some(cut_ns))
    }
}

/// A script function of another process.
#[derive(Clone, Debug)]
pub(crate) struct PastScript {
    pub(crate) name: String,
    pub(crate) file: String,
    /// Everything but the texts.
    pub(crate) rest: ScriptDescription<'static>,
}

/// A process that has ended.
#[derive(Debug, Default)]
pub(crate) struct PastProcess {
    /// The types of markers, by number.
    pub(crate) marker_types: NumberMap<DescribedType>,
    /// All categories that labels and markers may use.
    pub(crate) categories: Vec<&'static CategoryInfo>,
    /// The script functions, by number.
    pub(crate) scripts: NumberMap<PastScript>,
    /// The keys and values of the labels of contexts, by number.
    pub(crate) context_labels: NumberMap<(String, String)>,
    /// Whether the process still ran when its file was read.
    pub(crate) is_alive: bool,
    /// When the newest entry was recorded; `None` without entries.
    pub(crate) last_entry: Option<TimeStamp>,
    /// When the process noted its counts last.
    pub(crate) counted_at: Option<TimeStamp>,
    /// Numbers of what the file lacks or has damaged, by name.
    pub(crate) losses: Vec<(&'static str, u64)>,
}

impl PastProcess {
    /// Returns the script function with this number.
    pub(crate) fn script(&self, number: u32) -> Option<ScriptDescription<'_>> {
        let script = self.scripts.get(&u64::from(number))?;
        Some(ScriptDescription {
            name: &script.name,
            file: &script.file,
            ..script.rest
        })
    }
}

/// Returns the latest time of an entry, in ns since the process began.
pub(crate) fn last_entry_ns(buffer: &BufferSnapshot) -> Option<u64> {
    let mut last = None;
    for chunk in buffer.chunks() {
        let mut sample_ns = 0u64;
        // A malformed block ends its chunk.
        for block in chunk.map_while(Result::ok) {
            last = last.max(time_of(block, &mut sample_ns));
        }
    }
    last
}

fn time_of(Block { mut entry, .. }: Block<'_>, sample_ns: &mut u64) -> Option<u64> {
    match entry.kind()? {
        EntryKind::Sample | EntryKind::Same => {
            let (_, distance) = (entry.number()?, entry.signed()?);
            *sample_ns = sample_ns.wrapping_add(distance as u64);
            Some(*sample_ns)
        }
        EntryKind::Modules => {
            *sample_ns = 0;
            None
        }
        EntryKind::Marker => Some(DecodedMarker::read(&mut entry)?.last_ns()),
        EntryKind::Counter => {
            let (_, time_ns) = (entry.number()?, entry.number()?);
            Some(time_ns)
        }
        EntryKind::Pause
        | EntryKind::Resume
        | EntryKind::PauseSampling
        | EntryKind::ResumeSampling
        | EntryKind::Overhead
        | EntryKind::Wait
        | EntryKind::TickGap => entry.number(),
        EntryKind::EventProbe | EntryKind::Backtrace => None,
    }
}

/// What the options of a job say about the profiles of running children.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatherRequest {
    /// Earlier data is left out.
    pub(crate) since: Option<TimeStamp>,
    /// Maximum number of rows of samples and markers in all threads of one child together.
    pub(crate) max_rows: u64,
    pub(crate) symbolicate: Symbolicate,
    /// A child that makes no progress for this long is left out.
    pub(crate) child_timeout: Duration,
    /// Whether threads that sleep alike may be shown as one track.
    pub(crate) merges_alike: bool,
    /// The clock that the times of all processes refer to.
    pub(crate) clock: ProcessStart,
}

/// The children that ran when a profile was taken. Each holds a frozen profile of its own until
/// this is dropped.
pub(crate) trait FrozenChildren: Send + Sync + Debug {
    /// Begins to gather the profiles. All children write at the same time.
    fn gather(&self, request: &GatherRequest) -> Box<dyn Gathering>;
}

/// Profiles that are being gathered.
pub(crate) trait Gathering {
    /// Returns the earliest start of the children's sessions and the latest time at which one of
    /// them was frozen. Waits for the children that have not told these times yet, up to the
    /// time-out.
    fn times(&mut self) -> Option<(TimeStamp, TimeStamp)>;

    /// Waits for the next profile, and returns it. Returns `None` once each child's profile was
    /// returned or given up.
    fn next_profile(&mut self) -> Option<ChildProfile>;

    /// Returns the share of the work that is done, from 0 to 1.
    fn proportion(&self) -> f32;

    /// Returns what happened. Called last.
    fn take_log(&mut self) -> GatheringLog;
}

/// What happened while profiles were gathered.
#[derive(Clone, Debug)]
pub(crate) struct GatheringLog {
    pub(crate) begun: TimeStamp,
    pub(crate) ended: TimeStamp,
    /// One text for each event, such as a child that was left out, and the reason.
    pub(crate) events: Vec<(TimeStamp, String)>,
}
