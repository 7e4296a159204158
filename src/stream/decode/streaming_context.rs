//! Step 11 of 12: the entries are decoded once, each into the streaming context of its thread.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io;

use crate::buffer::{Block, EntryKind, EntryReader, SampleFields};
use crate::counters::{CounterReading, KnownCounter};
use crate::markers::{DecodedMarker, DecodedPayload};
use crate::model::UniqueStacks;
use crate::stream::decode::chunk_stacks::{ChunkStacks, FrameKey, FrameResolver};
use crate::stream::decode::contexts::Contexts;
use crate::stream::decode::process_data::{
    CounterRows, EntryClass, EntryCounts, Overhead, Overheads, PausedRanges, TaskWaitEntry,
    TaskWaits,
};
use crate::stream::decode::rows::{RowEvent, SampleRow, SampleRows, cut_before};
use crate::stream::decode::source::ProfileSource;
use crate::stream::decode::thread_context::ThreadStreamingContext;
use crate::stream::decode::tick_gaps::TickGaps;
use crate::stream::memory::check_memory;
use crate::types::CategoryInfo;
use crate::unwind::LoadedModule;
use crate::util::{NumberMap, ProgressLocation, ProgressLogger, TextTable};

/// Decodes the source. Without memory for it, leaves out the older half of the source's chunks until
/// the rest fits.
///
/// # Errors
/// The memory does not suffice for the newest chunk.
pub(crate) fn decode_newest(
    source: &mut ProfileSource,
    progress: &ProgressLogger,
) -> io::Result<ProcessStreamingContext> {
    loop {
        let decoded = ProcessStreamingContext::decode(source, progress)
            .and_then(|process| check_memory(process.unnamed_bytes()).map(|()| process));
        match decoded {
            Err(_) if source.buffer.leave_out_older_half() => {}
            decoded => return decoded,
        }
    }
}

/// Size of the entries that are decoded between two checks of the memory, in bytes.
const STEP_BYTES: usize = 256 << 10;
/// Memory for decoding entries, as a multiple of their size. Tables that double are not included.
const DECODED_FACTOR: usize = 8;

/// The buffer's contents for the process.
#[derive(Debug, Default)]
pub(crate) struct ProcessStreamingContext {
    pub(crate) threads: Vec<ThreadStreamingContext>,
    /// The stacks of all threads.
    pub(crate) stacks: UniqueStacks<FrameKey>,
    /// The label texts of all threads.
    pub(crate) label_texts: TextTable,
    /// The contexts of all threads' samples.
    pub(crate) contexts: Contexts,
    pub(crate) counters: Vec<(KnownCounter, CounterRows)>,
    /// The index of each counter, by its id.
    counter_index: NumberMap<usize>,
    /// All modules, sorted by address and without overlaps.
    pub(crate) modules: Vec<LoadedModule>,
    /// All categories that labels and markers may use.
    pub(crate) categories: Vec<&'static CategoryInfo>,
    pub(crate) marker_types: UsedMarkerTypes,
    /// For each marker stack, by its number: its index in `stacks`, and the time at which it was
    /// copied.
    marker_stacks: NumberMap<(u32, u64)>,
    /// Number of payloads among the markers printed so far that could not be read back.
    pub(crate) spoiled_payloads: Cell<u64>,
    pub(crate) paused_ranges: PausedRanges,
    /// Whether a profile may have a row for each tick that was left out.
    pub(crate) spreads_rows: bool,
    /// Where async tasks have waited.
    pub(crate) task_waits: TaskWaits,
    /// The gaps between the sampler's ticks.
    pub(crate) gaps: TickGaps,
    /// The cost of the sampler's ticks.
    pub(crate) overheads: Overheads,
    /// Time before which data is left out, in ns since the process began: see
    /// [`ProfileSource::cut_ns`].
    cut_ns: u64,
    /// Number of the buffer's entries by class, and number of unreadable entries.
    pub(crate) entry_counts: EntryCounts,
    /// For each chunk of the source, whether it has markers: such a chunk is read again when they
    /// are printed.
    pub(crate) chunks_with_markers: Vec<bool>,
    /// Number of idle rows that are left out: see [`Self::thin_idle_rows`].
    pub(crate) left_out_idle_rows: u64,
}

/// The marker types in use.
#[derive(Debug, Default)]
pub(crate) struct UsedMarkerTypes {
    /// Whether a marker has a text as payload.
    pub(crate) texts: bool,
    /// Whether a marker has no payload, but a stack or a window. Such markers have a type of their
    /// own.
    pub(crate) only_user_data: bool,
    /// The application's types, by number.
    pub(crate) typed: BTreeSet<u64>,
    /// The numbers of the application's types with a marker that has a stack or a window. If such a
    /// marker's payload is left out, its stack and window are kept.
    pub(crate) typed_with_user_data: BTreeSet<u64>,
    /// Number of markers that were left out, and that other markers represent.
    pub(crate) left_out: u64,
}

impl UsedMarkerTypes {
    fn add(&mut self, marker: &DecodedMarker<'_>) {
        self.left_out = self.left_out.saturating_add(marker.stands_for - 1);
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

impl ProcessStreamingContext {
    /// Decodes the whole contents of the source.
    ///
    /// # Errors
    /// The memory does not suffice for them.
    pub(crate) fn decode(source: &ProfileSource, progress: &ProgressLogger) -> io::Result<Self> {
        let threads: Vec<_> = source
            .threads
            .iter()
            .map(ThreadStreamingContext::new)
            .collect();
        let thread_index = ThreadIndex::new(threads.iter().map(|context| context.thread.serial()));
        let counters = source.counters.iter();
        let counter_index = counters
            .clone()
            .enumerate()
            .map(|(index, counter)| (counter.id, index))
            .collect();
        let counters = counters
            .map(|counter| (counter.clone(), CounterRows::default()))
            .collect();
        let mut context = Self {
            threads,
            counters,
            counter_index,
            modules: source.modules.all(),
            categories: source.categories(),
            overheads: Overheads::of_session(&source.overheads),
            cut_ns: source.cut_ns(),
            ..Self::default()
        };
        context.read(source, &thread_index, progress)?;
        context
            .paused_ranges
            .add_open(source.open_pauses, source.process_start.monotonic);
        context.paused_ranges.cut(context.cut_ns);
        context
            .threads
            .retain(|context| !context.ended_before_cut(source));
        for thread in &mut context.threads {
            thread.asleep_at = thread.find_place_of_sleep(source, &context.stacks);
        }
        Ok(context)
    }

    fn read(
        &mut self,
        source: &ProfileSource,
        thread_index: &ThreadIndex,
        progress: &ProgressLogger,
    ) -> io::Result<()> {
        let mut stacks = ChunkStacks::default();
        // They lie in the lanes of several threads.
        let mut pauses = Vec::new();
        let mut checked_bytes = 0;
        let cut_ns = self.cut_ns;
        for (_, chunk) in
            progress.loop_sub_loggers(source.buffer.chunks(), ProgressLocation::Entries)
        {
            stacks.begin(0);
            let markers_before = self.entry_counts.count_of(EntryClass::Marker);
            for block in chunk {
                let entry_bytes = block.as_ref().map_or(0, |block| block.entry.left());
                if entry_bytes > checked_bytes {
                    checked_bytes = entry_bytes.max(STEP_BYTES);
                    check_memory(self.growth_bytes() + DECODED_FACTOR * checked_bytes)?;
                }
                checked_bytes -= entry_bytes;
                let read = block.ok().and_then(|block| {
                    let bytes = block.bytes;
                    // Entries that are not new are read only for the chunk's stacks.
                    self.cut_ns = if block.is_new { cut_ns } else { u64::MAX };
                    let class =
                        self.read_entry(source, block, thread_index, &mut stacks, &mut pauses)?;
                    self.entry_counts.add(class, bytes);
                    Some(())
                });
                if read.is_none() {
                    self.entry_counts.malformed += 1;
                    stacks.is_broken = true;
                }
            }
            self.chunks_with_markers
                .push(self.entry_counts.count_of(EntryClass::Marker) > markers_before);
        }
        self.cut_ns = cut_ns;
        let of_threads = self.threads.iter();
        let sorting = of_threads.map(|thread| thread.markers.sorting_bytes());
        check_memory(sorting.max().unwrap_or(0) + self.task_waits.growth_bytes())?;
        self.task_waits.sort();
        pauses.sort_by_key(|&(time_ns, _)| time_ns);
        pauses
            .into_iter()
            .for_each(|(time_ns, kind)| self.paused_ranges.add(kind, time_ns));
        self.threads.iter_mut().for_each(|thread| {
            thread.markers.sort();
            thread.probes.sort();
        });
        Ok(())
    }

    /// Returns how much memory the tables take if each of them doubles. While a table grows, its old
    /// memory is still in use.
    fn growth_bytes(&self) -> usize {
        /// A number with its stack and time, in a hash table that is half full.
        const MARKER_STACK_BYTES: usize = 96;
        let of_threads = self.threads.iter().map(|thread| {
            thread.samples.growth_bytes()
                + thread.markers.growth_bytes()
                + thread.probes.growth_bytes()
                + thread.contexts.growth_bytes()
        });
        let of_counters = self.counters.iter().map(|(_, rows)| rows.growth_bytes());
        of_threads.chain(of_counters).sum::<usize>()
            + self.unnamed_bytes()
            + self.label_texts.growth_bytes()
            + self.contexts.growth_bytes()
            + self.task_waits.growth_bytes()
            + MARKER_STACK_BYTES * self.marker_stacks.len()
    }

    /// Returns how much memory the profile's tables of frames and stacks take if its addresses stay
    /// unnamed.
    pub(crate) fn unnamed_bytes(&self) -> usize {
        const FRAME_BYTES: usize = 256;
        const STACK_BYTES: usize = 48;
        FRAME_BYTES * self.stacks.frames().len() + STACK_BYTES * self.stacks.stacks().len()
    }

    /// Returns whether there is memory to look up names, which add as much to the tables.
    pub(crate) fn has_memory_for_names(&self) -> bool {
        /// Memory without which no debug information is read, in bytes.
        const MIN_BYTES: usize = 96 << 20;
        check_memory(MIN_BYTES + 2 * self.unnamed_bytes()).is_ok()
    }

    /// Returns the index of a marker's stack, and the time at which it was copied.
    pub(crate) fn stack_of_marker(&self, marker: &DecodedMarker<'_>) -> Option<(u32, u64)> {
        let stack = self.marker_stacks.get(&marker.stack).copied();
        stack.filter(|_| marker.stack != 0)
    }

    /// Returns the number of addresses in the profile's stacks.
    pub(crate) fn count_addresses(&self) -> u64 {
        let is_address = |frame: &&FrameKey| {
            matches!(
                frame,
                FrameKey::Native(_) | FrameKey::Waiting(..) | FrameKey::Replaced(..)
            )
        };
        self.stacks.frames().iter().filter(is_address).count() as u64
    }

    /// Reads an entry and returns its class, or `None` if it is malformed.
    fn read_entry(
        &mut self,
        source: &ProfileSource,
        Block {
            index: block,
            mut entry,
            ..
        }: Block<'_>,
        thread_index: &ThreadIndex,
        stacks: &mut ChunkStacks,
        pauses: &mut Vec<(u64, EntryKind)>,
    ) -> Option<EntryClass> {
        if let Some(class) = self.read_known_sample(entry.clone(), thread_index, stacks) {
            return Some(class);
        }
        let entry = &mut entry;
        match entry.kind()? {
            kind @ (EntryKind::Sample | EntryKind::Same) => {
                self.read_sample(source, kind, entry, thread_index, stacks)
            }
            EntryKind::Modules => {
                stacks.begin(entry.number()?);
                Some(EntryClass::Modules)
            }
            EntryKind::Marker => {
                let marker = DecodedMarker::read(entry)?;
                if usize::from(marker.category) >= self.categories.len() {
                    return None;
                }
                let last_ns = marker.last_ns();
                if last_ns >= self.cut_ns {
                    match thread_index.get(marker.thread) {
                        Some(index) => {
                            self.marker_types.add(&marker);
                            self.threads[index].markers.push(last_ns, block);
                        }
                        None => self.entry_counts.without_thread += 1,
                    }
                }
                Some(EntryClass::Marker)
            }
            EntryKind::Backtrace => {
                if stacks.is_broken {
                    return None;
                }
                let (number, time_ns) = (entry.number()?, entry.number()?);
                let (node, _) = self.read_stack(source, entry, stacks)?;
                self.marker_stacks
                    .insert(number, (stacks.stack(node, &mut self.stacks), time_ns));
                Some(EntryClass::Backtrace)
            }
            EntryKind::Wait => {
                if stacks.is_broken {
                    return None;
                }
                let (time_ns, weight_ns, interval_ns) =
                    (entry.number()?, entry.number()?, entry.number()?);
                let (node, _) = self.read_stack(source, entry, stacks)?;
                if time_ns >= self.cut_ns {
                    self.task_waits.push(TaskWaitEntry {
                        stack: stacks.stack(node, &mut self.stacks),
                        time_ns,
                        weight_ns,
                        interval_ns,
                        context: stacks.context(node),
                    });
                }
                Some(EntryClass::Wait)
            }
            EntryKind::EventProbe => {
                let (serial, posted_ns, waited_ns) =
                    (entry.number()?, entry.number()?, entry.number()?);
                if let Some(index) = thread_index.get(serial) {
                    self.threads[index]
                        .probes
                        .push(posted_ns, waited_ns.checked_sub(1));
                }
                Some(EntryClass::EventProbe)
            }
            EntryKind::Counter => {
                let (id, time_ns) = (entry.number()?, entry.number()?);
                let reading = CounterReading {
                    count: entry.signed()?,
                    operations: entry.number().unwrap_or(0),
                };
                let index = self.counter_index.get(&id);
                if let Some(&index) = index.filter(|_| time_ns >= self.cut_ns) {
                    self.counters[index].1.push(time_ns, reading);
                }
                Some(EntryClass::Counter)
            }
            kind @ (EntryKind::Pause
            | EntryKind::Resume
            | EntryKind::PauseSampling
            | EntryKind::ResumeSampling) => {
                pauses.push((entry.number()?, kind));
                Some(EntryClass::Pause)
            }
            EntryKind::TickGap => {
                self.gaps.read(entry)?;
                Some(EntryClass::TickGap)
            }
            EntryKind::Overhead => {
                let overhead = Overhead::read(entry)?;
                if overhead.time_ns >= self.cut_ns {
                    self.overheads.add(&overhead);
                }
                Some(EntryClass::Overhead)
            }
        }
    }

    /// Reads a stack. Returns its node, and whether the entry defines new nodes.
    fn read_stack(
        &mut self,
        source: &ProfileSource,
        entry: &mut EntryReader<'_>,
        stacks: &mut ChunkStacks,
    ) -> Option<(u32, bool)> {
        let mut resolver = FrameResolver {
            source,
            modules: &self.modules,
            label_texts: &mut self.label_texts,
            contexts: &mut self.contexts,
            categories: &self.categories,
        };
        stacks.read(entry, &mut resolver)
    }

    /// Reads a sample of the most frequent form: without rare fields, of a thread of the profile,
    /// after the cut, and with a stack that the profile has. For any other entry, returns `None`
    /// and changes nothing; [`Self::read_sample`] reads it.
    ///
    /// Calls no function that is not inlined, and takes the reader by value, so that it stays in
    /// registers.
    #[inline(always)]
    fn read_known_sample(
        &mut self,
        mut entry: EntryReader<'_>,
        thread_index: &ThreadIndex,
        stacks: &mut ChunkStacks,
    ) -> Option<EntryClass> {
        let kind = entry.kind()?;
        if !matches!(kind, EntryKind::Sample | EntryKind::Same) || stacks.is_broken {
            return None;
        }
        let fields = SampleFields::read_plain(&mut entry)?;
        let time_ns = stacks.time_ns(fields.distance_ns);
        if time_ns < self.cut_ns {
            return None;
        }
        let thread = thread_index.get(fields.thread)?;
        let (node, stack, class) = if kind == EntryKind::Same {
            let node = stacks.last_node(thread)?;
            (node, stacks.known_stack(node)?, EntryClass::SameSample)
        } else {
            let (node, stack) = stacks.read_known(entry)?;
            stacks.set_last_node(thread, node);
            (node, stack, EntryClass::RepeatedSample)
        };
        stacks.last_time_ns = time_ns;
        let thread = &mut self.threads[thread];
        thread
            .contexts
            .add_sample(stacks.context(node), time_ns, time_ns);
        thread
            .samples
            .push_plain(stack, time_ns, fields.cpu_delta_ns);
        Some(class)
    }

    #[inline(never)]
    fn read_sample(
        &mut self,
        source: &ProfileSource,
        kind: EntryKind,
        entry: &mut EntryReader<'_>,
        thread_index: &ThreadIndex,
        stacks: &mut ChunkStacks,
    ) -> Option<EntryClass> {
        if stacks.is_broken {
            return None;
        }
        let fields = SampleFields::read(entry)?;
        let time_ns = stacks.time_ns(fields.distance_ns);
        stacks.last_time_ns = time_ns;
        let repeats = fields.repeats;
        let thread = thread_index.get(fields.thread);
        if thread.is_none() {
            let is_after_cut = time_ns.saturating_add(repeats.span_ns) >= self.cut_ns;
            self.entry_counts.without_thread += u64::from(is_after_cut);
        }
        let (node, class) = match kind {
            EntryKind::Same => {
                // Samples of threads outside of the profile are not kept.
                let Some(thread) = thread else {
                    return Some(EntryClass::SameSample);
                };
                (stacks.last_node(thread)?, EntryClass::SameSample)
            }
            _ => match self.read_stack(source, entry, stacks)? {
                (node, true) => (node, EntryClass::Sample),
                (node, false) => (node, EntryClass::RepeatedSample),
            },
        };
        let class = match repeats.count {
            0 => class,
            _ => EntryClass::Run,
        };
        let Some(thread) = thread else {
            return Some(class);
        };
        stacks.set_last_node(thread, node);
        let row = SampleRow {
            stack: 0,
            time_ns,
            cpu_delta_ns: fields.cpu_delta_ns,
            event: RowEvent::from_field(fields.event),
            weight: fields.weight,
        };
        if let Some((row, repeats)) = cut_before(row, repeats, self.cut_ns, &self.gaps) {
            // Add the stack only now, when a row uses it.
            let stack = stacks.stack(node, &mut self.stacks);
            let last_ns = row.time_ns.saturating_add(repeats.span_ns);
            let thread = &mut self.threads[thread];
            let context = stacks.context(node);
            thread.contexts.add_sample(context, row.time_ns, last_ns);
            thread.samples.push(SampleRow { stack, ..row }, repeats);
        }
        Some(class)
    }

    /// Returns the number of ticks that were left out and that samples count for.
    pub(crate) fn left_out_ticks(&self) -> u64 {
        self.threads.iter().fold(0, |sum: u64, thread| {
            sum.saturating_add(thread.samples.left_out_ticks)
        })
    }

    /// Leaves out the idle rows of the threads that sleep nearly all the time, except for the first and
    /// the last one of each sleep. For a format whose rows have weights: a kept row counts for the
    /// left-out rows after it, so the profile loses no ticks. Such a thread takes no more of a long
    /// profile than of a short one.
    ///
    /// A thread with probes of its event loop keeps its rows, because the delay differs between them.
    pub(crate) fn thin_sleepers(&mut self) {
        for thread in &mut self.threads {
            thread.is_thinned = thread.probes.is_empty() && thread.samples.mostly_sleeps();
            if thread.is_thinned {
                thread.samples.keep_ends_of_sleeps();
            }
        }
    }

    /// Limits the printed rows of samples, markers and waits to `max_rows`, as far as leaving out
    /// idle rows allows. An idle row is a sample in which the thread did not run. A run keeps the
    /// sample that its idle rows repeat, its first and its last idle row, and evenly spaced ones
    /// between them.
    pub(crate) fn thin_idle_rows(&mut self, max_rows: u64) {
        let gaps = &self.gaps;
        let sum = |is_thinned: bool, of: &dyn Fn(&SampleRows) -> u64| {
            let threads = self.threads.iter();
            let threads = threads.filter(|thread| thread.is_thinned == is_thinned);
            threads.fold(0, |sum: u64, thread| {
                sum.saturating_add(of(&thread.samples))
            })
        };
        let (rows, idle, least_idle) = (
            sum(false, &SampleRows::rows),
            sum(false, &|rows| rows.idle_rows),
            sum(false, &|rows| rows.least_idle_rows),
        );
        let of_sleepers = sum(true, &|rows| rows.kept_rows(gaps));
        let markers: u64 = self
            .threads
            .iter()
            .map(|thread| (thread.markers.len() + thread.contexts.all.len()) as u64)
            .sum();
        let waits = self.task_waits.limit_rows(max_rows);
        let max_rows = max_rows
            .saturating_sub(markers)
            .saturating_sub(waits)
            .saturating_sub(of_sleepers);
        if rows <= max_rows {
            self.spreads_rows = rows.saturating_add(self.left_out_ticks()) <= max_rows;
            return;
        }
        let available = max_rows
            .saturating_sub(rows - idle)
            .saturating_sub(least_idle);
        let stride = if available == 0 {
            u64::MAX
        } else {
            idle.div_ceil(available)
        };
        let mut kept = 0u64;
        for thread in &mut self.threads {
            if !thread.is_thinned {
                thread.samples.thin_idle_rows(stride);
                kept = thread.samples.kept_rows(gaps).saturating_add(kept);
            }
        }
        self.left_out_idle_rows = rows.saturating_sub(kept);
    }
}

/// The positions of threads in a profile, by serial number.
#[derive(Debug)]
struct ThreadIndex {
    /// The slots, a power of two in number. Each is empty or holds a serial number and its
    /// position. Threads that were registered one after another have adjacent slots, and are found
    /// without a hash.
    near: Vec<Option<(u64, usize)>>,
    /// Threads whose slot in `near` is taken by another thread.
    far: NumberMap<usize>,
}

impl ThreadIndex {
    /// Makes the index from serial numbers in the order of the profile.
    fn new(serials: impl ExactSizeIterator<Item = u64>) -> Self {
        let slots = (serials.len() * 4).next_power_of_two();
        let mut index = Self {
            near: vec![None; slots],
            far: NumberMap::default(),
        };
        for (position, serial) in serials.enumerate() {
            let slot = index.slot(serial);
            match &mut index.near[slot] {
                Some(_) => _ = index.far.insert(serial, position),
                free => *free = Some((serial, position)),
            }
        }
        index
    }

    fn slot(&self, serial: u64) -> usize {
        serial as usize & (self.near.len() - 1)
    }

    #[inline]
    fn get(&self, serial: u64) -> Option<usize> {
        match self.near[self.slot(serial)] {
            Some((near, position)) if near == serial => Some(position),
            _ if self.far.is_empty() => None,
            _ => self.far.get(&serial).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn get_finds_exactly_the_given_threads() {
        let cases: [&[u64]; 5] = [
            &[],
            &[7],
            &[1, 2, 3],
            &[1, 17, 33, 49, 2, u64::MAX],
            &[0, 1 << 40, 5, 1 << 50],
        ];
        for serials in cases {
            let index = ThreadIndex::new(serials.iter().copied());
            for (position, &serial) in serials.iter().enumerate() {
                assert_eq!(index.get(serial), Some(position), "{serial} of {serials:?}");
            }
            for unknown in [4, 65, 1 << 41, u64::MAX - 1] {
                assert_eq!(index.get(unknown), None, "{unknown} in {serials:?}");
            }
        }
    }
}
