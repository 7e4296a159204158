//! Stop 11 of 12: the entries are decoded once, each to its thread's streaming context.

use std::cell::Cell;
use std::collections::BTreeSet;

use crate::base::{
    CategoryInfo, FrameFlags, NumberMap, ProgressLocation, ProgressLogger, all_categories,
};
use crate::buffer::{Block, EntryKind, EntryReader, SampleFlags};
use crate::counters::CounterDescription;
use crate::markers::{DecodedMarker, DecodedPayload};
use crate::stream::chunk_stacks::{ChunkStacks, FrameKey, Meanings};
use crate::stream::entry_counts::{EntryCounts, EntrySort};
use crate::stream::event_probes::EventProbes;
use crate::stream::marker_places::MarkerPlaces;
use crate::stream::overheads::{Overhead, Overheads};
use crate::stream::paused_ranges::PausedRanges;
use crate::stream::rows::{CounterRows, More, RowEvent, SampleRow, SampleRows, cut_before};
use crate::stream::source::ProfileSource;
use crate::stream::text_table::TextTable;
use crate::stream::thread_places::ThreadPlaces;
use crate::stream::unique_stacks::UniqueStacks;
use crate::symbols::SampledAddress;
use crate::threads::{OffThreadRef, joined_label_text};
use crate::unwind::{LoadedModule, Meant};

/// What the buffer holds of one thread.
#[derive(Debug)]
pub(crate) struct ThreadStreamingContext {
    pub(crate) thread: OffThreadRef,
    pub(crate) samples: SampleRows,
    /// In the order of the last moments that they tell of.
    pub(super) markers: MarkerPlaces,
    pub(super) probes: EventProbes,
}

/// No run has more: it is written now and then. With more, their sum over a damaged buffer would have no end.
const MOST_IN_RUN: u64 = u32::MAX as u64;

/// What few samples have.
#[derive(Clone, Copy, Default)]
struct SampleRest {
    event: RowEvent,
    more: More,
}

impl SampleRest {
    /// Of an entry that has either.
    #[cold]
    fn read(entry: &mut EntryReader<'_>, flags: SampleFlags) -> Option<Self> {
        let event = if flags.has(SampleFlags::HAS_EVENT) {
            Some(entry.number()?)
        } else {
            None
        };
        let event = RowEvent::from_field(event);
        let more = match flags.has(SampleFlags::HAS_MORE) {
            true => More {
                count: entry.number()?,
                span_ns: entry.number()?,
            },
            false => More::default(),
        };
        (more.count <= MOST_IN_RUN).then_some(Self { event, more })
    }
}

/// What the buffer holds of the process.
#[derive(Debug)]
pub(crate) struct ProcessStreamingContext {
    pub(crate) threads: Vec<ThreadStreamingContext>,
    /// Those of all threads.
    pub(super) stacks: UniqueStacks<FrameKey>,
    /// Of the labels of all threads.
    pub(super) label_texts: TextTable,
    pub(super) counters: Vec<(&'static CounterDescription, CounterRows)>,
    /// All modules, sorted by address and without overlaps.
    pub(super) modules: Vec<LoadedModule>,
    /// All that labels and markers may name.
    pub(super) categories: Vec<&'static CategoryInfo>,
    pub(super) marker_types: UsedMarkerTypes,
    /// Stacks of markers, by their numbers, among those of all threads, and when each was copied.
    pub(super) marker_stacks: NumberMap<(u32, u64)>,
    /// Payloads that could not be read back, as far as markers were printed.
    pub(super) spoiled_payloads: Cell<u64>,
    pub(super) paused_ranges: PausedRanges,
    /// What the sampler's ticks cost, if they wrote it down.
    pub(super) overheads: Option<Overheads>,
    /// What is earlier stays out: see [`ProfileSource::cut_ns`].
    cut_ns: u64,
    /// What the buffer holds, sort by sort, and what of it could not be read.
    pub(super) entry_counts: EntryCounts,
    /// Of each chunk of the source, whether it has to be read again: markers are read where they are printed.
    pub(super) chunks_with_markers: Vec<bool>,
    /// Rows of threads that did not run that are left out: see [`Self::thin_idle_rows`].
    pub(super) left_out_idle_rows: u64,
}

/// The types of the markers that there are.
#[derive(Debug, Default)]
pub(super) struct UsedMarkerTypes {
    pub(super) texts: bool,
    /// Without a payload, and with a stack or a window, for which there is a type.
    pub(super) only_user_data: bool,
    /// Those of the host's, by their numbers.
    pub(super) typed: BTreeSet<u64>,
    /// Those of them of which a marker has a stack or a window, which stay where its payload is left out.
    pub(super) typed_with_user_data: BTreeSet<u64>,
}

impl UsedMarkerTypes {
    fn add(&mut self, marker: &DecodedMarker<'_>) {
        match marker.payload {
            DecodedPayload::None => self.only_user_data |= marker.has_user_data(),
            DecodedPayload::Text(_) => self.texts = true,
            DecodedPayload::Typed { number, .. } => {
                self.typed.insert(number);
                if marker.has_user_data() {
                    self.typed_with_user_data.insert(number);
                }
            }
        }
    }
}

/// What native frames of this profile were, and the texts of its labels.
struct ProfileMeanings<'a> {
    source: &'a ProfileSource,
    modules: &'a [LoadedModule],
    label_texts: &'a mut TextTable,
    categories: &'a [&'static CategoryInfo],
}

impl Meanings for ProfileMeanings<'_> {
    fn native(&mut self, address: SampledAddress, modules: u64) -> FrameKey {
        let at = address.lookup_address();
        match self.source.modules.meaning(self.modules, at, modules) {
            Meant::Replaced(module) => FrameKey::Replaced(module, address),
            Meant::Unknown if self.source.generated_code.find(at).is_none() => FrameKey::Unknown,
            Meant::Same | Meant::Unknown => FrameKey::Native(address),
        }
    }

    fn label_text(&mut self, label: &[u8], dynamic: &[u8], flags: FrameFlags) -> u32 {
        self.label_texts
            .intern(joined_label_text(label, dynamic, flags))
    }

    fn subcategories(&self, category: u8) -> usize {
        self.categories
            .get(usize::from(category))
            .map_or(0, |category| category.subcategories.len())
    }
}

/// What is collected before it can be put in its order, since the lanes of several threads hold it.
#[derive(Default)]
struct Unordered {
    pauses: Vec<(u64, EntryKind)>,
}

impl ProcessStreamingContext {
    /// Of everything that the source holds.
    pub(crate) fn decode(source: &ProfileSource, progress: &ProgressLogger) -> Self {
        let threads: Vec<_> = source
            .threads
            .iter()
            .map(ThreadStreamingContext::new)
            .collect();
        let places = ThreadPlaces::new(threads.iter().map(|context| context.thread.serial()));
        let counters = source
            .session
            .counters
            .iter()
            .map(|&counter| (counter, CounterRows::default()))
            .collect();
        let mut context = Self {
            threads,
            stacks: UniqueStacks::default(),
            label_texts: TextTable::default(),
            counters,
            modules: source.modules.all(),
            categories: all_categories(),
            marker_types: UsedMarkerTypes::default(),
            marker_stacks: NumberMap::default(),
            spoiled_payloads: Cell::new(0),
            paused_ranges: PausedRanges::default(),
            overheads: None,
            cut_ns: source.cut_ns(),
            entry_counts: EntryCounts::default(),
            chunks_with_markers: Vec::new(),
            left_out_idle_rows: 0,
        };
        context.read(source, &places, progress);
        context
            .paused_ranges
            .add_open(source.open_pauses, source.process_start.monotonic);
        context.paused_ranges.cut(context.cut_ns);
        context
            .threads
            .retain(|context| !context.is_too_long_ago(source));
        context
    }

    fn read(&mut self, source: &ProfileSource, places: &ThreadPlaces, progress: &ProgressLogger) {
        let mut stacks = ChunkStacks::default();
        let mut unordered = Unordered::default();
        for (_, chunk) in
            progress.loop_sub_loggers(source.buffer.chunks(), ProgressLocation::Entries)
        {
            stacks.begin(0);
            let markers_before = self.entry_counts.count_of(EntrySort::Marker);
            for block in chunk {
                let read = block.ok().and_then(|block| {
                    let bytes = block.bytes;
                    let sort =
                        self.read_entry(source, block, places, &mut stacks, &mut unordered)?;
                    self.entry_counts.add(sort, bytes);
                    Some(())
                });
                if read.is_none() {
                    self.entry_counts.malformed += 1;
                    stacks.lose();
                }
            }
            self.chunks_with_markers
                .push(self.entry_counts.count_of(EntrySort::Marker) > markers_before);
        }
        unordered.pauses.sort_by_key(|&(time_ns, _)| time_ns);
        unordered
            .pauses
            .into_iter()
            .for_each(|(time_ns, kind)| self.paused_ranges.add(kind, time_ns));
        self.threads
            .iter_mut()
            .for_each(|thread| thread.markers.sort());
    }

    /// `None` when the entry is malformed. An entry of a thread that is not in the profile is skipped.
    fn read_entry(
        &mut self,
        source: &ProfileSource,
        Block {
            index: block,
            mut entry,
            ..
        }: Block<'_>,
        places: &ThreadPlaces,
        stacks: &mut ChunkStacks,
        unordered: &mut Unordered,
    ) -> Option<EntrySort> {
        let entry = &mut entry;
        match entry.kind()? {
            kind @ (EntryKind::Sample | EntryKind::Same) => {
                self.read_sample(source, kind, entry, places, stacks)
            }
            EntryKind::Modules => {
                stacks.begin(entry.number()?);
                Some(EntrySort::Modules)
            }
            EntryKind::Marker => {
                let marker = DecodedMarker::read(entry)?;
                if usize::from(marker.category) >= self.categories.len() {
                    return None;
                }
                let last_ns = marker.last_ns();
                if let Some(index) = places.get(marker.thread)
                    && last_ns >= self.cut_ns
                {
                    self.marker_types.add(&marker);
                    self.threads[index].markers.push(last_ns, block);
                }
                Some(EntrySort::Marker)
            }
            EntryKind::Backtrace => {
                if stacks.is_lost() {
                    return None;
                }
                let (number, time_ns) = (entry.number()?, entry.number()?);
                let Self {
                    modules,
                    label_texts,
                    categories,
                    ..
                } = self;
                let mut meanings = ProfileMeanings {
                    source,
                    modules,
                    label_texts,
                    categories,
                };
                let (node, _) = stacks.read(entry, &mut meanings)?;
                self.marker_stacks
                    .insert(number, (stacks.stack(node, &mut self.stacks), time_ns));
                Some(EntrySort::Backtrace)
            }
            EntryKind::EventProbe => {
                let (serial, posted_ns, waited_ns) =
                    (entry.number()?, entry.number()?, entry.number()?);
                if let Some(index) = places.get(serial) {
                    self.threads[index]
                        .probes
                        .push(posted_ns, waited_ns.checked_sub(1));
                }
                Some(EntrySort::EventProbe)
            }
            EntryKind::Counter => {
                let (id, time_ns, value) = (entry.number()?, entry.number()?, entry.signed()?);
                let rows = self
                    .counters
                    .iter_mut()
                    .find(|(counter, _)| counter.id == id);
                if let Some((_, rows)) = rows.filter(|_| time_ns >= self.cut_ns) {
                    rows.push(time_ns, value);
                }
                Some(EntrySort::Counter)
            }
            kind @ (EntryKind::Pause
            | EntryKind::Resume
            | EntryKind::PauseSampling
            | EntryKind::ResumeSampling) => {
                unordered.pauses.push((entry.number()?, kind));
                Some(EntrySort::Pause)
            }
            EntryKind::Overhead => {
                let overhead = Overhead::read(entry)?;
                if overhead.time_ns >= self.cut_ns {
                    self.overheads.get_or_insert_default().add(&overhead);
                }
                Some(EntrySort::Overhead)
            }
        }
    }

    fn read_sample(
        &mut self,
        source: &ProfileSource,
        kind: EntryKind,
        entry: &mut EntryReader<'_>,
        places: &ThreadPlaces,
        stacks: &mut ChunkStacks,
    ) -> Option<EntrySort> {
        if stacks.is_lost() {
            return None;
        }
        let serial = entry.number()?;
        let time_ns = stacks.time_ns(entry.signed()?);
        let flags = SampleFlags::from_byte(entry.byte()?);
        let cpu_delta_ns = if flags.has(SampleFlags::HAS_CPU) {
            Some(entry.number()?)
        } else {
            None
        };
        let is_plain = !flags.has(SampleFlags::HAS_EVENT) && !flags.has(SampleFlags::HAS_MORE);
        let rest = if is_plain {
            None
        } else {
            Some(SampleRest::read(entry, flags)?)
        };
        let thread = places.get(serial);
        let (node, sort) = match kind {
            EntryKind::Same => {
                // Of a thread that is not in the profile nothing is kept.
                let Some(thread) = thread else {
                    return Some(EntrySort::SameSample);
                };
                (stacks.last_node(thread)?, EntrySort::SameSample)
            }
            _ => {
                let Self {
                    modules,
                    label_texts,
                    categories,
                    ..
                } = self;
                let mut meanings = ProfileMeanings {
                    source,
                    modules,
                    label_texts,
                    categories,
                };
                let (node, has_fresh) = stacks.read(entry, &mut meanings)?;
                (
                    node,
                    if has_fresh {
                        EntrySort::Sample
                    } else {
                        EntrySort::RepeatedSample
                    },
                )
            }
        };
        if let Some(thread) = thread {
            stacks.set_last_node(thread, node);
            let Self {
                stacks: profile_stacks,
                threads,
                cut_ns,
                ..
            } = self;
            let rows = &mut threads[thread].samples;
            let SampleRest { event, more } = rest.unwrap_or_default();
            if rest.is_none() && time_ns >= *cut_ns {
                rows.push_plain(stacks.stack(node, profile_stacks), time_ns, cpu_delta_ns);
            } else if let Some((row, more)) = cut_before(
                SampleRow {
                    stack: 0,
                    time_ns,
                    cpu_delta_ns,
                    event,
                },
                more,
                *cut_ns,
            ) {
                // What nobody asks for has no stack made for it.
                rows.push(
                    SampleRow {
                        stack: stacks.stack(node, profile_stacks),
                        ..row
                    },
                    more,
                );
            }
        }
        Some(if rest.is_some_and(|rest| rest.more.count > 0) {
            EntrySort::Run
        } else {
            sort
        })
    }

    /// Has no more than `max_rows` rows of samples and markers printed, if leaving out some of the samples in which a thread did
    /// not run is enough for that. Of each run of them the first and the last stay, and those between evenly spaced.
    pub(crate) fn thin_idle_rows(&mut self, max_rows: u64) {
        let sum = |of: fn(&SampleRows) -> u64| {
            self.threads.iter().fold(0, |sum: u64, thread| {
                sum.saturating_add(of(&thread.samples))
            })
        };
        let (rows, idle, runs) = (
            sum(SampleRows::rows),
            sum(SampleRows::idle_rows),
            sum(SampleRows::runs),
        );
        let markers: u64 = self
            .threads
            .iter()
            .map(|thread| thread.markers.len() as u64)
            .sum();
        let max_rows = max_rows.saturating_sub(markers);
        if rows <= max_rows {
            return;
        }
        // A run keeps one row more than its share, at the most.
        let room = max_rows.saturating_sub(rows - idle).saturating_sub(runs);
        let stride = if room == 0 {
            u64::MAX
        } else {
            idle.div_ceil(room)
        };
        for thread in &mut self.threads {
            thread.samples.thin_idle_rows(stride);
        }
        let kept: u64 = self
            .threads
            .iter()
            .map(|thread| thread.samples.kept_rows())
            .sum();
        self.left_out_idle_rows = rows - kept;
    }
}

impl ThreadStreamingContext {
    fn new(thread: &OffThreadRef) -> Self {
        Self {
            thread: thread.clone(),
            samples: SampleRows::default(),
            markers: MarkerPlaces::default(),
            probes: EventProbes::default(),
        }
    }

    /// Whether it had ended before anything that the profile holds, so that there is nothing of it.
    fn is_too_long_ago(&self, source: &ProfileSource) -> bool {
        let ended_at = self
            .thread
            .unlocked_const_reader_and_atomic_rw()
            .unregistered_at()
            .map(|time| source.ns_since_start(time));
        let ended = ended_at.is_some_and(|ended_ns| ended_ns < source.cut_ns());
        ended && self.samples.rows() == 0 && self.markers.len() == 0
    }
}
