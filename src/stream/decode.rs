//! Stop 11 of 12: the entries are decoded once, each to its thread's streaming context.

use std::collections::HashMap;

use crate::base::{CodeAddress, FrameFlags};
use crate::buffer::{BlockIndex, ChunkNumber, EntryKind, EntryReader, SampleFlags};
use crate::counters::CounterDescription;
use crate::json::{StringIndex, UniqueStrings};
use crate::markers::{DecodedMarker, MarkerPayload};
use crate::stream::event_probes::EventProbes;
use crate::stream::overheads::{Overhead, OverheadStatistics};
use crate::stream::paused_ranges::PausedRanges;
use crate::stream::rows::{CounterRows, More, RowEvent, SampleRow, SampleRows, cut_before};
use crate::stream::source::ProfileSource;
use crate::stream::unique_stacks::UniqueStacks;
use crate::symbols::SampledAddress;
use crate::threads::{OffThreadRef, joined_label_text};
use crate::unwind::{LoadedModule, Meant};

/// A frame as it was sampled, before it is named.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum FrameKey {
    Root,
    /// Stands below the frames of a stack that is not the thread's own.
    OtherStack,
    /// Stands for the frames that are missing.
    Truncated,
    /// Stands for labels that are missing, behind the newest that is there.
    LabelsLeftOut,
    Native(SampledAddress),
    /// In a module that was unloaded and whose place another took, by its number.
    Replaced(usize, SampledAddress),
    /// In a module that was unloaded and that nobody remembers.
    Unknown,
    Label {
        text: StringIndex,
        category: u8,
        subcategory: u8,
        relevant_for_js: bool,
    },
    /// In a function of a script, by its number; a line or column of 0 is not known.
    Script {
        function: u32,
        line: u32,
        column: u32,
    },
}

/// What the buffer holds of one thread.
#[derive(Debug)]
pub(crate) struct ThreadStreamingContext {
    pub(crate) thread: OffThreadRef,
    pub(crate) samples: SampleRows,
    pub(super) stacks: UniqueStacks<FrameKey>,
    pub(super) markers: Vec<BlockIndex>,
    pub(super) probes: EventProbes,
    /// The stack of the last sample, and the chunk that it was written to.
    last: Option<(ChunkNumber, LastStack)>,
}

/// The stack of a sample.
#[derive(Clone, Copy, Debug)]
enum LastStack {
    Read(u32),
    /// The sample is too long ago, so that nobody may ever ask for its stack; its entry is here.
    InEntry(BlockIndex),
}

/// What a sample's entry begins with.
struct SampleHead {
    serial: u64,
    time_ns: u64,
    flags: SampleFlags,
    cpu_delta_ns: Option<u64>,
    event: RowEvent,
    more: More,
}

impl SampleHead {
    /// Of an entry whose kind was read already.
    fn read(entry: &mut EntryReader<'_>) -> Option<Self> {
        let (serial, time_ns) = (entry.number()?, entry.number()?);
        let flags = SampleFlags::from_byte(entry.byte()?);
        let cpu_delta_ns = if flags.has(SampleFlags::HAS_CPU) { Some(entry.number()?) } else { None };
        let event = if flags.has(SampleFlags::HAS_EVENT) { Some(entry.number()?) } else { None };
        let event = RowEvent::from_field(event);
        let more = match flags.has(SampleFlags::HAS_MORE) {
            true => More { count: entry.number()?, span_ns: entry.number()? },
            false => More::default(),
        };
        Some(Self { serial, time_ns, flags, cpu_delta_ns, event, more })
    }
}

/// What the buffer holds of the process.
#[derive(Debug)]
pub(crate) struct ProcessStreamingContext {
    pub(crate) threads: Vec<ThreadStreamingContext>,
    /// The texts of all labels.
    pub(super) label_texts: UniqueStrings,
    pub(super) label_strings: Vec<String>,
    pub(super) counters: Vec<(&'static CounterDescription, CounterRows)>,
    /// All modules, sorted by address and without overlaps.
    pub(super) modules: Vec<LoadedModule>,
    pub(super) has_text_markers: bool,
    pub(super) paused_ranges: PausedRanges,
    /// What the sampler's ticks cost, if they wrote it down.
    pub(super) overheads: Option<OverheadStatistics>,
    /// What is earlier stays out: see [`ProfileSource::cut_ns`].
    cut_ns: u64,
    /// Entries that could not be read.
    pub(super) malformed_entries: u64,
}

impl ProcessStreamingContext {
    pub(crate) fn decode(source: &ProfileSource) -> Self {
        let threads: Vec<_> = source.threads.iter().map(ThreadStreamingContext::new).collect();
        let by_serial: HashMap<u64, usize> =
            threads.iter().enumerate().map(|(index, context)| (context.thread.serial(), index)).collect();
        let counters =
            source.session.counters.iter().map(|&counter| (counter, CounterRows::default())).collect();
        let mut context = Self {
            threads,
            label_texts: UniqueStrings::default(),
            label_strings: Vec::new(),
            counters,
            modules: source.modules.all(),
            has_text_markers: false,
            paused_ranges: PausedRanges::default(),
            overheads: None,
            cut_ns: source.cut_ns(),
            malformed_entries: 0,
        };
        context.read(source, &by_serial);
        context.paused_ranges.add_open(source.open_pauses, source.process_start.monotonic);
        context.paused_ranges.cut(context.cut_ns);
        context.threads.retain(|context| !context.is_too_long_ago(source));
        context
    }

    fn read(&mut self, source: &ProfileSource, by_serial: &HashMap<u64, usize>) {
        source.buffer.for_each_entry(|chunk, block, mut entry| {
            if self.read_entry(source, chunk, block, &mut entry, by_serial).is_none() {
                self.malformed_entries += 1;
            }
        });
    }

    /// `None` when the entry is malformed. An entry of a thread that is not in the profile is skipped.
    fn read_entry(
        &mut self,
        source: &ProfileSource,
        chunk: ChunkNumber,
        block: BlockIndex,
        entry: &mut EntryReader<'_>,
        by_serial: &HashMap<u64, usize>,
    ) -> Option<()> {
        match entry.kind()? {
            kind @ (EntryKind::Sample | EntryKind::Same) => {
                let head = SampleHead::read(entry)?;
                let Some(&index) = by_serial.get(&head.serial) else { return Some(()) };
                let SampleHead { time_ns, cpu_delta_ns, event, more, .. } = head;
                let row = SampleRow { stack: 0, time_ns, cpu_delta_ns, event };
                let left = cut_before(row, more, self.cut_ns);
                let last = match kind {
                    EntryKind::Sample if left.is_none() => LastStack::InEntry(block),
                    EntryKind::Sample => {
                        LastStack::Read(self.read_stack(source, index, head.flags, block, entry)?)
                    }
                    _ => self.threads[index].last.filter(|(last_chunk, _)| *last_chunk == chunk)?.1,
                };
                self.threads[index].last = Some((chunk, last));
                let Some((row, more)) = left else { return Some(()) };
                let stack = match last {
                    LastStack::Read(stack) => stack,
                    LastStack::InEntry(block) => {
                        let mut entry = source.buffer.entry_at(block)?;
                        entry.kind()?;
                        let head = SampleHead::read(&mut entry)?;
                        self.read_stack(source, index, head.flags, block, &mut entry)?
                    }
                };
                let thread = &mut self.threads[index];
                thread.last = Some((chunk, LastStack::Read(stack)));
                thread.samples.push(SampleRow { stack, ..row }, more);
            }
            EntryKind::Marker => {
                let marker = DecodedMarker::read(entry)?;
                let Some(&index) = by_serial.get(&marker.thread) else { return Some(()) };
                if marker.last_ns() < self.cut_ns {
                    return Some(());
                }
                self.has_text_markers |= matches!(marker.payload, MarkerPayload::Text(_));
                self.threads[index].markers.push(block);
            }
            EntryKind::EventProbe => {
                let (serial, posted_ns, waited_ns) = (entry.number()?, entry.number()?, entry.number()?);
                if let Some(&index) = by_serial.get(&serial) {
                    self.threads[index].probes.push(posted_ns, waited_ns.checked_sub(1));
                }
            }
            EntryKind::Counter => {
                let (id, time_ns, value) = (entry.number()?, entry.number()?, entry.signed()?);
                let rows = self.counters.iter_mut().find(|(counter, _)| counter.id == id);
                if let Some((_, rows)) = rows.filter(|_| time_ns >= self.cut_ns) {
                    rows.push(time_ns, value);
                }
            }
            kind @ (EntryKind::Pause
            | EntryKind::Resume
            | EntryKind::PauseSampling
            | EntryKind::ResumeSampling) => self.paused_ranges.add(kind, entry.number()?),
            EntryKind::Overhead => {
                let overhead = Overhead::read(entry)?;
                if overhead.time_ns >= self.cut_ns {
                    self.overheads.get_or_insert_default().add(&overhead);
                }
            }
        }
        Some(())
    }

    fn read_stack(
        &mut self,
        source: &ProfileSource,
        thread: usize,
        flags: SampleFlags,
        block: BlockIndex,
        entry: &mut EntryReader<'_>,
    ) -> Option<u32> {
        let mut frames = Vec::with_capacity(64);
        if flags.has(SampleFlags::OTHER_STACK) {
            frames.push(FrameKey::OtherStack);
        }
        if flags.has(SampleFlags::TRUNCATED) {
            frames.push(FrameKey::Truncated);
        }
        let mut address = 0u64;
        let mut behind_labels = frames.len();
        for _ in 0..entry.number()? {
            let head = entry.number()?;
            for _ in 0..head >> 1 {
                frames.push(if head & 1 == 0 {
                    address = address.wrapping_add(entry.signed()? as u64);
                    let address = CodeAddress::new(address);
                    FrameKey::Native(SampledAddress { address, is_return_address: true })
                } else {
                    self.read_label(entry)?
                });
            }
            if head & 1 == 1 {
                behind_labels = frames.len();
            }
        }
        // The innermost native frame's address is that of the next instruction; no call returns there.
        let innermost = frames.iter_mut().rev().find_map(|frame| match frame {
            FrameKey::Native(address) => Some(address),
            _ => None,
        });
        if let Some(address) = innermost {
            address.is_return_address = false;
        }
        for frame in &mut frames {
            let FrameKey::Native(address) = *frame else { continue };
            let at = address.lookup_address();
            match source.modules.meaning(&self.modules, at, block.get()) {
                Meant::Replaced(module) => *frame = FrameKey::Replaced(module, address),
                Meant::Unknown if source.generated_code.find(at).is_none() => *frame = FrameKey::Unknown,
                Meant::Same | Meant::Unknown => {}
            }
        }
        if flags.has(SampleFlags::LABELS_LEFT_OUT) {
            frames.insert(behind_labels, FrameKey::LabelsLeftOut);
        }
        let stacks = &mut self.threads[thread].stacks;
        let root = stacks.append_frame(None, FrameKey::Root);
        Some(frames.into_iter().fold(root, |prefix, frame| stacks.append_frame(Some(prefix), frame)))
    }

    /// A frame of the label stack.
    fn read_label(&mut self, entry: &mut EntryReader<'_>) -> Option<FrameKey> {
        let flags = FrameFlags::from_byte(entry.byte()?);
        if flags.has(FrameFlags::SCRIPT) {
            let mut number = || u32::try_from(entry.number()?).ok();
            return Some(FrameKey::Script { function: number()?, line: number()?, column: number()? });
        }
        let (category, subcategory) = (entry.byte()?, entry.byte()?);
        let text = self.label_text(entry.text()?, entry.text()?);
        let relevant_for_js = flags.has(FrameFlags::RELEVANT_FOR_JS);
        Some(FrameKey::Label { text, category, subcategory, relevant_for_js })
    }

    /// A label's text, dynamic part and all.
    fn label_text(&mut self, label: &[u8], dynamic: &[u8]) -> StringIndex {
        let text = joined_label_text(label, dynamic);
        let index = self.label_texts.intern(&text);
        if index.0 as usize == self.label_strings.len() {
            self.label_strings.push(text);
        }
        index
    }
}

impl ThreadStreamingContext {
    fn new(thread: &OffThreadRef) -> Self {
        Self {
            thread: thread.clone(),
            samples: SampleRows::default(),
            stacks: UniqueStacks::default(),
            markers: Vec::new(),
            probes: EventProbes::default(),
            last: None,
        }
    }

    pub(super) fn replaced_addresses(&self) -> impl Iterator<Item = (usize, SampledAddress)> {
        self.stacks.frames().iter().filter_map(|frame| match frame {
            FrameKey::Replaced(module, address) => Some((*module, *address)),
            _ => None,
        })
    }

    /// Whether it had ended before anything that the profile holds, so that there is nothing of it.
    fn is_too_long_ago(&self, source: &ProfileSource) -> bool {
        let ended_at = self
            .thread
            .unlocked_const_reader_and_atomic_rw()
            .unregistered_at()
            .map(|time| source.ns_since_start(time));
        let ended = ended_at.is_some_and(|ended_ns| ended_ns < source.cut_ns());
        ended && self.samples.len() == 0 && self.markers.is_empty()
    }

    pub(super) fn native_addresses(&self) -> impl Iterator<Item = SampledAddress> {
        self.stacks.frames().iter().filter_map(|frame| match frame {
            FrameKey::Native(address) => Some(*address),
            _ => None,
        })
    }
}
