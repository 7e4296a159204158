//! Step 9 of 12: a sample is delta-encoded against the contents of its chunk.
//!
//! A stack that is already in the chunk is written as a number. Of any other stack, only the frames
//! that differ from the known stacks are written. A sample that repeats the thread's last stack
//! does not name a stack at all. The grammar is in `entry_kind.rs`.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use crate::buffer::{
    ChunkNumber, EntryHead, EntryKind, EntryWriter, FrameTag, LaneHandle, ROOT_NODES, Repeats,
    SampleFields, TickGap, zigzag,
};
use crate::capture::EventLoopState;
use crate::sampler::encode::idle_period::Tick;
use crate::sampler::encode::stored_stack::{NativePlace, StoredFrame, StoredStack};
use crate::types::{Generation, TimeStamp};
use crate::util::{NumberMap, pair_key};
use crate::waiting_tasks::WaitRow;

/// The last stack of a thread, which its samples repeat until it changes, and the dictionary that
/// last contained it.
#[derive(Debug, Default)]
pub(crate) struct LastStack {
    stack: StoredStack,
    written_in: Option<DictionaryEpoch>,
}

impl LastStack {
    /// Makes `stack` the thread's last stack. Returns false if memory for it is lacking: then the
    /// last stack has no frames.
    pub(crate) fn try_set(&mut self, stack: &StoredStack) -> bool {
        if self.stack.is_same(stack) {
            self.stack.head.event_loop = stack.head.event_loop;
            return true;
        }
        self.written_in = None;
        self.stack.try_copy_from(stack)
    }
}

/// The thread and time of a sample, and the CPU time since the thread's previous sample if that is
/// recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleTime {
    pub(crate) thread: u64,
    pub(crate) time: TimeStamp,
    pub(crate) cpu_delta_ns: Option<u64>,
    pub(crate) repeats: Repeats,
    /// Number of ticks that the first sample counts for: its own, and those left out after it.
    pub(crate) weight: u64,
}

/// State that is kept from sample to sample: the contents of the chunk, and the memory of the
/// entry.
#[derive(Debug, Default)]
pub(crate) struct SampleEncoder {
    dictionary: StackDictionary,
    entry: EntryWriter,
    /// The latest time in any sample so far. A run is written long after it begins, and a chunk is
    /// as old as the latest time in it.
    latest: TimeStamp,
    gaps: RecentGaps,
}

/// Maximum length of a sample without its stack, in bytes, including the module list entry before
/// it.
const MAX_HEAD_BYTES: usize = 96;

/// Writes samples to the buffer.
pub(crate) struct SampleWriter<'a> {
    pub(crate) lane: &'a LaneHandle<'a>,
    pub(crate) encoder: &'a RefCell<SampleEncoder>,
    pub(crate) session: Generation,
    pub(crate) process_start: TimeStamp,
}

impl SampleWriter<'_> {
    /// Writes a sample with the thread's last stack, and the samples that repeat it. `modules` is
    /// the module list with which the stack was unwound. Returns the number of samples written; 0
    /// if the buffer has no space.
    pub(crate) fn write(&self, sample: SampleTime, modules: u64, last: &mut LastStack) -> u64 {
        let samples = sample.repeats.count + 1;
        let mut encoder = self.encoder.borrow_mut();
        let last_time = sample.time.plus_ns(sample.repeats.span_ns);
        encoder.latest = encoder.latest.max(last_time);
        let is_put = self.put_with_retries(&mut encoder, |encoder| {
            self.put(encoder, sample, modules, last)
        });
        if is_put { samples } else { 0 }
    }

    fn put(
        &self,
        encoder: &mut SampleEncoder,
        sample: SampleTime,
        modules: u64,
        last: &mut LastStack,
    ) -> bool {
        // Before the dictionary is read: it may begin again.
        let Some(chunk) = self.chunk_with_modules(encoder, modules) else {
            return false;
        };
        let epoch = encoder.dictionary.epoch;
        let time_ns = sample.time.since_ns(self.process_start);
        let (kind, stack) = match last.written_in == Some(epoch) {
            true => (EntryKind::Same, None),
            false => (EntryKind::Sample, Some(&last.stack)),
        };
        let event = match last.stack.head.event_loop {
            EventLoopState::Unknown => None,
            EventLoopState::Idle => Some(0),
            EventLoopState::Running(queued) => {
                Some(1 + zigzag(sample.time.signed_since_ns(queued)))
            }
        };
        let fields = SampleFields {
            thread: sample.thread,
            distance_ns: time_ns.wrapping_sub(encoder.dictionary.last_time_ns) as i64,
            cpu_delta_ns: sample.cpu_delta_ns,
            event,
            repeats: sample.repeats,
            weight: sample.weight,
        };
        let is_put = self.put_with_stack(encoder, chunk, &fields.entry(kind), stack);
        if is_put {
            encoder.dictionary.last_time_ns = time_ns;
            last.written_in = Some(epoch);
        }
        is_put
    }

    /// Writes the marker stack with this number, which was unwound with this module list. Returns
    /// false if the buffer has no space.
    pub(crate) fn write_backtrace(
        &self,
        number: u64,
        time: TimeStamp,
        modules: u64,
        stack: &StoredStack,
    ) -> bool {
        let mut encoder = self.encoder.borrow_mut();
        encoder.latest = encoder.latest.max(time);
        let mut head = EntryHead::new(EntryKind::Backtrace);
        head.number(number)
            .number(time.since_ns(self.process_start));
        self.put_with_retries(&mut encoder, |encoder| {
            self.put_backtrace(encoder, &head, modules, stack)
        })
    }

    /// Writes where async tasks have waited. Returns false if the buffer has no space.
    pub(crate) fn write_wait(&self, row: &WaitRow, modules: u64, stack: &StoredStack) -> bool {
        let mut encoder = self.encoder.borrow_mut();
        encoder.latest = encoder.latest.max(row.time);
        let mut head = EntryHead::new(EntryKind::Wait);
        head.number(row.time.since_ns(self.process_start))
            .number(row.weight_ns)
            .number(row.interval_ns);
        self.put_with_retries(&mut encoder, |encoder| {
            self.put_backtrace(encoder, &head, modules, stack)
        })
    }

    /// Calls `put` up to three times. The first call fails if the lane has left the dictionary's
    /// chunk or the chunk is full. The second call fails if the lane's current chunk is full, too.
    /// The third call starts a new chunk, and reuses the memory of the dictionary's tables if those
    /// could not grow. Without memory for a chunk, no call is repeated.
    fn put_with_retries(
        &self,
        encoder: &mut SampleEncoder,
        mut put: impl FnMut(&mut SampleEncoder) -> bool,
    ) -> bool {
        put(encoder)
            || !self.lane.lacks_memory() && put(encoder)
            || (!self.lane.lacks_memory()
                && self.lane.fits_in_chunk(
                    MAX_HEAD_BYTES + encoder.entry.bytes().len() + encoder.gaps.bytes(),
                )
                && {
                    self.lane.leave_chunk(encoder.latest);
                    encoder.dictionary.forget();
                    put(encoder)
                })
    }

    fn put_backtrace(
        &self,
        encoder: &mut SampleEncoder,
        head: &EntryHead,
        modules: u64,
        stack: &StoredStack,
    ) -> bool {
        let chunk = self.chunk_with_modules(encoder, modules);
        chunk.is_some_and(|chunk| self.put_with_stack(encoder, chunk, head, Some(stack)))
    }

    /// Puts an entry with a stack into the chunk that the dictionary describes.
    fn put_with_stack(
        &self,
        encoder: &mut SampleEncoder,
        chunk: ChunkNumber,
        head: &EntryHead,
        stack: Option<&StoredStack>,
    ) -> bool {
        let SampleEncoder {
            dictionary,
            entry,
            latest,
            ..
        } = encoder;
        if stack.is_some_and(|stack| !dictionary.write(stack, entry)) {
            return false;
        }
        let entry = head.with(entry.bytes());
        let put = (self.lane).put_in_chunk(chunk, self.session, *latest, &entry);
        if put.is_none() {
            // The entry was not written, so what it added to the dictionary does not exist.
            dictionary.forget();
        }
        put.is_some()
    }

    /// Begins an entry. Returns the chunk that the dictionary describes. Restarts the dictionary if it
    /// describes no chunk or if the module list changed.
    fn chunk_with_modules(&self, encoder: &mut SampleEncoder, modules: u64) -> Option<ChunkNumber> {
        // `put_with_retries` reads the length of the entry, which must not be that of an earlier sample,
        // even if the chunk has no space for the modules and the gaps before it.
        encoder.entry.clear();
        if let Some(chunk) = encoder.dictionary.chunk(modules) {
            return Some(chunk);
        }
        let mut entry = EntryHead::new(EntryKind::Modules);
        let now = encoder.latest;
        let chunk = self.lane.put(self.session, now, entry.number(modules))?;
        encoder.dictionary.begin(chunk, modules);
        self.put_gaps(encoder, chunk).then_some(chunk)
    }

    /// Adds a gap between two ticks, for the samples that are written from now on.
    pub(crate) fn add_gap(&self, before: TimeStamp, after: Tick) {
        let mut encoder = self.encoder.borrow_mut();
        encoder.gaps.add(TickGap {
            time_ns: after.time.since_ns(self.process_start),
            before_ns: before.since_ns(self.process_start),
            tick: after.number,
        });
        // Otherwise, the next chunk gets it before its first sample.
        if let Some((chunk, _)) = encoder.dictionary.described {
            self.put_gaps(&mut encoder, chunk);
        }
    }

    /// Puts the gaps that the chunk does not have yet. If not all fit, returns false, and the
    /// dictionary leaves the chunk.
    fn put_gaps(&self, encoder: &mut SampleEncoder, chunk: ChunkNumber) -> bool {
        let SampleEncoder {
            dictionary,
            latest,
            gaps,
            ..
        } = encoder;
        let all_put = gaps.missing_in(chunk).all(|gap| {
            let entry = gap.entry();
            let put = self.lane.put_in_chunk(chunk, self.session, *latest, &entry);
            put.is_some()
        });
        match all_put {
            true => gaps.set_written(chunk),
            false => dictionary.forget(),
        }
        all_put
    }
}

/// Identifies one filling of the dictionary. Numbers from one filling mean nothing in another.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct DictionaryEpoch(u64);

/// The frames and stacks that the current chunk of samples already contains. The reader of the chunk
/// rebuilds the same tables from the entries (`crate::stream::decode::chunk_stacks`). They are reused
/// from chunk to chunk to keep their memory.
#[derive(Debug, Default)]
struct StackDictionary {
    /// The chunk that the dictionary describes, and the number of its module list. `None` before
    /// the first chunk and when the chunk is full.
    described: Option<(ChunkNumber, u64)>,
    epoch: DictionaryEpoch,
    /// Time of the previous sample, in ns since the process began.
    last_time_ns: u64,
    native: NumberMap<u32>,
    /// Labels by the hash of their encoding: their number, and the range of the encoding in
    /// `label_codes`. If two have the same hash, only the first is known.
    labels: NumberMap<(u32, Range<usize>)>,
    label_codes: Vec<u8>,
    frames: u32,
    /// Nodes by their parent node and the number of their frame.
    nodes: NumberMap<u32>,
    /// For each node, the address of the nearest native frame in its stack.
    addresses: Vec<u64>,
}

impl StackDictionary {
    /// Returns the chunk that the dictionary describes, if it uses this module list.
    fn chunk(&self, modules: u64) -> Option<ChunkNumber> {
        let described = self.described.filter(|(_, list)| *list == modules);
        described.map(|(chunk, _)| chunk)
    }

    /// Detaches the dictionary from its chunk.
    fn forget(&mut self) {
        self.described = None;
    }

    /// Restarts the dictionary for a chunk that contains none of its stacks.
    fn begin(&mut self, chunk: ChunkNumber, modules: u64) {
        self.described = Some((chunk, modules));
        self.epoch = DictionaryEpoch(self.epoch.0 + 1);
        self.last_time_ns = 0;
        self.native.clear();
        self.labels.clear();
        self.label_codes.clear();
        self.frames = 0;
        self.nodes.clear();
        self.addresses.clear();
        self.addresses.resize(ROOT_NODES as usize, 0);
    }

    /// Writes a stack as the difference from the known stacks, and adds it to them. Returns false,
    /// and writes nothing, if memory is lacking.
    #[must_use]
    fn write(&mut self, stack: &StoredStack, out: &mut EntryWriter) -> bool {
        let mut node = stack.root();
        let mut rest = stack.frames();
        while let Some((&frame, after)) = rest.split_first()
            && let Some(frame) = self.known(stack, frame)
            && let Some(&next) = self.nodes.get(&pair_key(node, frame))
        {
            (node, rest) = (next, after);
        }
        if !self.try_reserve(rest, out) {
            return false;
        }
        out.number(node.into()).number(rest.len() as u64);
        for &frame in rest {
            let before = self.addresses[node as usize];
            let address = match frame {
                StoredFrame::Native { address, .. } => address,
                StoredFrame::Label { .. } => before,
            };
            let number = match self.known(stack, frame) {
                Some(number) => {
                    out.number(FrameTag::Known.join(number.into()));
                    number
                }
                None => self.define(stack, frame, before, out),
            };
            let next = self.addresses.len() as u32;
            self.addresses.push(address);
            self.nodes.insert(pair_key(node, number), next);
            node = next;
        }
        true
    }

    /// Makes space for a stack's unknown frames, in the tables and in `out`. Returns false if
    /// memory is lacking.
    fn try_reserve(&mut self, frames: &[StoredFrame], out: &mut EntryWriter) -> bool {
        let label_lengths = frames.iter().filter_map(|frame| match frame {
            StoredFrame::Native { .. } => None,
            StoredFrame::Label { start, end } => Some((end - start) as usize),
        });
        let (labels, code_bytes) = label_lengths.fold((0, 0), |(labels, bytes), length| {
            (labels + 1, bytes + length)
        });
        // A waiting frame takes two numbers.
        out.try_reserve(3 + frames.len(), code_bytes)
            && self.native.try_reserve(frames.len() - labels).is_ok()
            && self.labels.try_reserve(labels).is_ok()
            && self.label_codes.try_reserve(code_bytes).is_ok()
            && self.nodes.try_reserve(frames.len()).is_ok()
            && self.addresses.try_reserve(frames.len()).is_ok()
    }

    fn known(&self, stack: &StoredStack, frame: StoredFrame) -> Option<u32> {
        match frame {
            StoredFrame::Native { address, place } => {
                self.native.get(&native_key(address, place)).copied()
            }
            StoredFrame::Label { start, end } => {
                let code = stack.label(start, end);
                let (number, range) = self.labels.get(&hash_of(code))?;
                (self.label_codes[range.clone()] == *code).then_some(*number)
            }
        }
    }

    /// Writes a frame that is not known yet, and returns its number.
    fn define(
        &mut self,
        stack: &StoredStack,
        frame: StoredFrame,
        before: u64,
        out: &mut EntryWriter,
    ) -> u32 {
        let number = self.frames;
        self.frames += 1;
        match frame {
            StoredFrame::Native { address, place } => {
                let distance = zigzag(address.wrapping_sub(before) as i64);
                // The tag takes two bits. Addresses of programs leave more than two bits unused.
                let rest = distance & (u64::MAX >> 2);
                match place {
                    NativePlace::Return => out.number(FrameTag::Return.join(rest)),
                    NativePlace::Innermost => out.number(FrameTag::Innermost.join(rest)),
                    NativePlace::Waiting(wait) => {
                        let tag = FrameTag::WAITING + u64::from(wait.to_byte());
                        out.number(FrameTag::Label.join(tag)).number(distance)
                    }
                };
                self.native.insert(native_key(address, place), number);
            }
            StoredFrame::Label { start, end } => {
                let code = stack.label(start, end);
                out.raw(code);
                let start = self.label_codes.len();
                self.label_codes.extend_from_slice(code);
                let range = start..self.label_codes.len();
                self.labels.entry(hash_of(code)).or_insert((number, range));
            }
        }
        number
    }
}

/// Returns the key of a native frame. The addresses of programs leave the upper bits unused.
fn native_key(address: u64, place: NativePlace) -> u64 {
    let rest = match place {
        NativePlace::Return => 0,
        NativePlace::Innermost => 1,
        NativePlace::Waiting(wait) => 1 | (u64::from(wait.to_byte()) + 1) << 60,
    };
    address << 1 | rest
}

/// Hashes with the standard library's hasher, because an attacker may choose the application's
/// texts.
fn hash_of(code: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    code.hash(&mut hasher);
    hasher.finish()
}

/// Maximum number of gaps: about 1 KiB in each chunk. If a program has more of them within a run,
/// the oldest ones are unknown in later chunks.
const MAX_GAPS: usize = 64;
/// Maximum age of a gap when another one begins, in ns: longer than any run, as long as the sampler can
/// look at every idle thread now and then.
const MAX_AGE_NS: u64 = 600_000_000_000;
/// Maximum length of the entry of a gap, in bytes.
const MAX_ENTRY_BYTES: usize = 32;

/// The latest gaps between the sampler's ticks, in order of time, which each chunk of samples repeats.
///
/// A run of idle samples is written a minute or more after it begins. The chunk that was current at a
/// gap within the run may have been destroyed before the run is read, and the run would have rows in
/// the gap.
#[derive(Debug, Default)]
struct RecentGaps {
    gaps: VecDeque<TickGap>,
    /// The chunk that has all gaps except the latest ones, whose number is `unwritten`.
    written_in: Option<ChunkNumber>,
    unwritten: usize,
}

impl RecentGaps {
    /// Adds a gap, which no chunk has yet. Forgets gaps that are too old, and the oldest gap if
    /// there are too many.
    fn add(&mut self, gap: TickGap) {
        // During the gap itself, no run was written.
        let earliest_ns = gap.before_ns.saturating_sub(MAX_AGE_NS);
        while self.gaps.len() == MAX_GAPS
            || (self.gaps.front()).is_some_and(|old| old.time_ns < earliest_ns)
        {
            self.gaps.pop_front();
        }
        // Without memory, the reader takes the ticks as even.
        if self.gaps.try_reserve(1).is_ok() {
            self.gaps.push_back(gap);
            self.unwritten += 1;
        }
    }

    /// Returns the gaps that the chunk does not have.
    fn missing_in(&self, chunk: ChunkNumber) -> impl Iterator<Item = &TickGap> {
        let known = match self.written_in == Some(chunk) {
            true => self.gaps.len().saturating_sub(self.unwritten),
            false => 0,
        };
        self.gaps.range(known..)
    }

    /// Notes that the chunk has all gaps.
    fn set_written(&mut self, chunk: ChunkNumber) {
        (self.written_in, self.unwritten) = (Some(chunk), 0);
    }

    /// Returns how many bytes all gaps take in a chunk, at most.
    fn bytes(&self) -> usize {
        self.gaps.len() * MAX_ENTRY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{ChunkEntries, ChunkedBuffer};
    use crate::sampler::encode::idle_period::IdlePeriod;

    const SESSION: Generation = ChunkedBuffer::TEST_SESSION;
    const MODULES: u64 = 1;
    const SECOND_NS: u64 = 1_000_000_000;

    /// A writer with its own leaked buffer.
    struct TestWriter {
        buffer: &'static ChunkedBuffer,
        lane: LaneHandle<'static>,
        encoder: RefCell<SampleEncoder>,
    }

    impl TestWriter {
        fn new(capacity_bytes: u64) -> Self {
            let buffer: &'static _ = Box::leak(Box::new(ChunkedBuffer::for_test(capacity_bytes)));
            let lane = buffer.take_lane_for_samples();
            Self {
                buffer,
                lane,
                encoder: RefCell::default(),
            }
        }

        fn writer(&self) -> SampleWriter<'_> {
            SampleWriter {
                lane: &self.lane,
                encoder: &self.encoder,
                session: SESSION,
                process_start: TimeStamp(0),
            }
        }

        fn write(&self, sample: SampleTime, last: &mut LastStack) {
            let written = self.writer().write(sample, MODULES, last);
            assert_eq!(written, sample.repeats.count + 1);
        }

        /// Returns the kinds of the entries of each chunk, without those of counters.
        fn kinds(&self) -> Vec<Vec<EntryKind>> {
            let snapshot = self.buffer.snapshot();
            let kinds_of = |chunk: ChunkEntries<'_>| {
                chunk
                    .map(|block| block.expect("well-formed").entry.byte())
                    .filter_map(|kind| EntryKind::from_byte(kind.expect("a kind")))
                    .filter(|kind| *kind != EntryKind::Counter)
                    .collect()
            };
            snapshot.chunks().map(kinds_of).collect()
        }

        fn put_counter(&self, now: TimeStamp) {
            let mut entry = EntryHead::new(EntryKind::Counter);
            entry.number(1).number(now.0).signed(12_345);
            assert!(self.lane.put(SESSION, now, &entry.bytes()).is_some());
        }

        fn put_bytes(&self) -> u64 {
            self.buffer.fill_level().expect("in session").1.put_bytes
        }
    }

    fn sleeping(thread: u64) -> LastStack {
        let mut last = LastStack::default();
        let addresses: Vec<u64> = (0..20)
            .map(|frame| 0x7f00_0000_0000 + thread + frame * 0x1234)
            .collect();
        assert!(last.try_set(&StoredStack::of_addresses(&addresses)));
        last
    }

    fn sample(thread: u64, first: TimeStamp, last: TimeStamp, ticks: u64) -> SampleTime {
        let span_ns = last.since_ns(first);
        SampleTime {
            thread,
            time: first,
            cpu_delta_ns: Some(0),
            repeats: Repeats {
                count: ticks - 1,
                span_ns,
                first_tick: None,
            },
            weight: 1,
        }
    }

    #[test]
    fn hour_of_sleep_takes_about_a_kilobyte() {
        const INTERVAL_NS: u64 = 1_000_000;
        let writer = TestWriter::new(128 << 20);
        let mut last = sleeping(1);
        let tick = |number| Tick {
            number,
            time: TimeStamp(number * INTERVAL_NS),
        };
        let mut idle = IdlePeriod::new(0, None, tick(0));
        let (mut ticks, mut runs, mut longest_ns) = (0, 0, 0);
        // A thousand threads take turns, so each has one turn a second.
        for number in (1000..=3_600_000).step_by(1000) {
            if idle.is_overdue(tick(number).time, false) {
                let run = idle.take_run(tick(number), 1_000_000, 0).expect("ticks");
                writer.write(sample(1, run.first, run.last, run.ticks), &mut last);
                longest_ns = longest_ns.max(run.last.since_ns(run.first));
                (ticks, runs) = (ticks + run.ticks, runs + 1);
            }
        }
        let bytes = writer.put_bytes();
        assert!(ticks >= 3_600_000 - 65_000, "{ticks}");
        assert!(longest_ns <= 65 * SECOND_NS, "{longest_ns}");
        assert!(runs <= 80 && bytes <= 1400, "{runs} runs, {bytes} bytes");
    }

    #[test]
    fn chunk_begun_by_another_entry_is_filled() {
        let writer = TestWriter::new(1 << 20);
        let mut last = sleeping(1);
        // Counters dominate, so that they begin the chunks.
        for number in 1..60_000 {
            let time = TimeStamp(number * 1_000_000);
            writer.put_counter(time);
            if number % 50 == 0 {
                writer.write(sample(1, time, time, 1), &mut last);
            }
        }
        let chunks = writer.buffer.snapshot().chunks().len() as u64;
        let full_chunks = writer.put_bytes() / (256 << 10);
        assert!((2..4).contains(&full_chunks), "{full_chunks}");
        assert_eq!(chunks, full_chunks + 1);
    }

    #[test]
    fn each_chunk_has_the_gaps_before_its_first_sample() {
        use EntryKind::{Modules, Same, Sample, TickGap as Gap};
        let writer = TestWriter::new(64 << 10);
        let mut last = sleeping(1);
        let at = |number: u64| TimeStamp(number * 1_000_000);
        let add_gap = |number| {
            let time = at(number);
            (writer.writer()).add_gap(at(number - 1), Tick { number, time });
        };
        // No chunk yet.
        add_gap(10);
        let mut write = |number| writer.write(sample(1, at(number), at(number), 1), &mut last);
        write(20);
        write(30);
        add_gap(40);
        write(50);
        let filled = |writer: &TestWriter, chunks| {
            while writer.kinds().len() < chunks {
                writer.put_counter(at(60));
            }
        };
        filled(&writer, 2);
        write(70);
        // The chunk is full when the next gap comes.
        filled(&writer, 3);
        add_gap(80);
        write(90);
        assert_eq!(
            writer.kinds(),
            [
                vec![Modules, Gap, Sample, Same, Gap, Same],
                vec![Modules, Gap, Gap, Sample],
                vec![Modules, Gap, Gap, Gap, Sample],
            ]
        );
    }

    #[test]
    fn chunk_is_as_old_as_its_latest_sample() {
        const CAPACITY: u64 = 64 << 10;
        let writer = TestWriter::new(CAPACITY);
        let (mut sleeper, mut busy) = (sleeping(1), sleeping(2));
        // Chunks end with current samples and begin with runs that reach far back.
        let mut now = TimeStamp(60 * SECOND_NS);
        while writer.put_bytes() < CAPACITY * 2 / 3 {
            now = now.plus_ns(1_000_000);
            writer.write(sample(1, TimeStamp(0), now, 60_000), &mut sleeper);
            writer.write(sample(2, now, now, 1), &mut busy);
        }
        writer
            .buffer
            .discard_old(|| now, Some(TimeStamp(60 * SECOND_NS)));
        let snapshot = writer.buffer.snapshot();
        assert!(snapshot.chunks().len() > 2);
        assert_eq!(
            (snapshot.statistics.recycled_chunks, snapshot.complete_since),
            (0, None)
        );
        writer.buffer.discard_old(|| now, Some(now));
        let complete_since = writer.buffer.snapshot().complete_since;
        assert!(
            complete_since.is_some_and(|time| time > TimeStamp(60 * SECOND_NS)),
            "{complete_since:?}"
        );
    }

    fn gap(number: u64, time: u64) -> TickGap {
        TickGap {
            time_ns: time,
            before_ns: time - 1,
            tick: number,
        }
    }

    fn numbers(gaps: &RecentGaps) -> Vec<u64> {
        gaps.gaps.iter().map(|gap| gap.tick).collect()
    }

    #[test]
    fn old_gaps_are_forgotten() {
        let mut gaps = RecentGaps::default();
        (1..=200).for_each(|number| gaps.add(gap(number, number * 10)));
        assert_eq!(numbers(&gaps), (137..=200).collect::<Vec<_>>());
        // A gap of an hour does not age the others.
        let mut long = gap(201, 6 * MAX_AGE_NS);
        long.before_ns = 2001;
        gaps.add(long);
        assert_eq!(numbers(&gaps), (138..=201).collect::<Vec<_>>());
        gaps.add(gap(202, 7 * MAX_AGE_NS));
        assert_eq!(numbers(&gaps), [201, 202]);
    }

    #[test]
    fn chunk_gets_the_gaps_that_it_does_not_have() {
        let mut gaps = RecentGaps::default();
        let chunks = [ChunkNumber(1), ChunkNumber(2)];
        let missing = |gaps: &RecentGaps| {
            chunks.map(|chunk| gaps.missing_in(chunk).collect::<Vec<_>>().len())
        };
        gaps.add(gap(1, 10));
        assert_eq!(missing(&gaps), [1, 1]);
        gaps.set_written(chunks[0]);
        assert_eq!(missing(&gaps), [0, 1]);
        gaps.add(gap(2, 20));
        assert_eq!(missing(&gaps), [1, 2]);
        gaps.set_written(chunks[1]);
        assert_eq!(missing(&gaps), [2, 0]);
    }

    #[test]
    fn entry_is_no_longer_than_its_maximum() {
        let entry = gap(u64::MAX, u64::MAX).entry();
        assert!(entry.bytes().len() < MAX_ENTRY_BYTES);
    }
}
