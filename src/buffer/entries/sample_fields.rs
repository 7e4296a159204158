//! A sample before its stack, with its repeats while the thread sleeps, and the gaps between the
//! sampler's ticks that divide these. The sampler writes them, and the decoder reads them.

use crate::buffer::entries::entry::{EntryHead, EntryReader};
use crate::buffer::entries::entry_kind::EntryKind;

/// Maximum weight of a sample. A second has fewer ticks at the shortest interval.
const MAX_SAMPLE_WEIGHT: u64 = 1 << 20;
/// Maximum number of repeats in one entry. The sampler writes runs often enough to stay below it.
/// Without this limit, a damaged buffer could claim any number of rows.
const MAX_REPEATS: u64 = u32::MAX as u64;

/// The repeats of a sample: later samples with the same stack and event, in which the thread used
/// no CPU time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Repeats {
    /// Number of repeats, without the sample itself.
    pub(crate) count: u64,
    /// Time from the sample to its last repeat, in ns.
    pub(crate) span_ns: u64,
    /// Number of the sample's tick. `None` if no gap lies before the sample or among its repeats, as far
    /// as the sampler knows.
    pub(crate) first_tick: Option<u64>,
}

/// Two successive ticks of the sampler that are not evenly spaced with those before them. Times are in ns since the process began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TickGap {
    /// The time of the tick after the gap.
    pub(crate) time_ns: u64,
    /// The time of the tick before the gap.
    pub(crate) before_ns: u64,
    /// The number of the tick after the gap.
    pub(crate) tick: u64,
}

impl TickGap {
    pub(crate) fn entry(&self) -> EntryHead {
        let mut entry = EntryHead::new(EntryKind::TickGap);
        entry
            .number(self.time_ns)
            .number(self.before_ns)
            .number(self.tick);
        entry
    }

    /// Reads an entry whose kind was already read.
    pub(crate) fn read(entry: &mut EntryReader<'_>) -> Option<Self> {
        Some(Self {
            time_ns: entry.number()?,
            before_ns: entry.number()?,
            tick: entry.number()?,
        })
    }
}

/// The fields of a sample before its stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleFields {
    /// Serial number of the thread.
    pub(crate) thread: u64,
    /// Time since the previous sample of the chunk, in ns.
    pub(crate) distance_ns: i64,
    /// CPU time since the thread's previous sample, if it is recorded.
    pub(crate) cpu_delta_ns: Option<u64>,
    /// The state of the thread's event loop, if it has one.
    pub(crate) event: Option<u64>,
    pub(crate) repeats: Repeats,
    /// Number of ticks that the sample counts for: its own, and those left out after it.
    pub(crate) weight: u64,
}

/// Flags that say which fields a sample has.
const HAS_CPU: u8 = 1;
const HAS_MORE: u8 = 2;
const HAS_EVENT: u8 = 4;
const HAS_WEIGHT: u8 = 8;
/// Only together with `HAS_MORE`.
const HAS_TICK: u8 = 16;
/// The flags of fields that few samples have.
const RARE: u8 = HAS_MORE | HAS_EVENT | HAS_WEIGHT;

impl SampleFields {
    /// Returns the beginning of an entry of this kind.
    pub(crate) fn entry(&self, kind: EntryKind) -> EntryHead {
        let repeats = self.repeats;
        let first_tick = repeats.first_tick.filter(|_| repeats.count > 0);
        let flags = [
            (self.cpu_delta_ns.is_some(), HAS_CPU),
            (repeats.count > 0, HAS_MORE),
            (self.event.is_some(), HAS_EVENT),
            (self.weight != 1, HAS_WEIGHT),
            (first_tick.is_some(), HAS_TICK),
        ];
        let flags = flags.map(|(is_there, flag)| if is_there { flag } else { 0 });
        let mut entry = EntryHead::new(kind);
        entry
            .number(self.thread)
            .signed(self.distance_ns)
            .byte(flags.iter().sum());
        for number in [self.cpu_delta_ns, self.event].into_iter().flatten() {
            entry.number(number);
        }
        if repeats.count > 0 {
            entry.number(repeats.count).number(repeats.span_ns);
        }
        if let Some(tick) = first_tick {
            entry.number(tick);
        }
        if self.weight != 1 {
            entry.number(self.weight.min(MAX_SAMPLE_WEIGHT));
        }
        entry
    }

    /// Reads the fields of a sample, after the kind of its entry.
    pub(crate) fn read(entry: &mut EntryReader<'_>) -> Option<Self> {
        let (mut fields, flags) = Self::read_frequent(entry)?;
        if flags & RARE != 0 {
            fields.read_rare(entry, flags)?;
        }
        Some(fields)
    }

    /// Reads the fields of a sample without rare ones. Returns `None` for any other sample.
    #[inline(always)]
    pub(crate) fn read_plain(entry: &mut EntryReader<'_>) -> Option<Self> {
        let (fields, flags) = Self::read_frequent(entry)?;
        (flags & RARE == 0).then_some(fields)
    }

    #[inline(always)]
    fn read_frequent(entry: &mut EntryReader<'_>) -> Option<(Self, u8)> {
        let (thread, distance_ns) = (entry.number()?, entry.signed()?);
        let flags = entry.byte()?;
        let cpu_delta_ns = if flags & HAS_CPU != 0 {
            Some(entry.number()?)
        } else {
            None
        };
        let fields = Self {
            thread,
            distance_ns,
            cpu_delta_ns,
            event: None,
            repeats: Repeats::default(),
            weight: 1,
        };
        Some((fields, flags))
    }

    #[cold]
    fn read_rare(&mut self, entry: &mut EntryReader<'_>, flags: u8) -> Option<()> {
        if flags & HAS_EVENT != 0 {
            self.event = Some(entry.number()?);
        }
        if flags & HAS_MORE != 0 {
            (self.repeats.count, self.repeats.span_ns) = (entry.number()?, entry.number()?);
            if flags & HAS_TICK != 0 {
                self.repeats.first_tick = Some(entry.number()?);
            }
        }
        if flags & HAS_WEIGHT != 0 {
            self.weight = entry.number()?;
        }
        let is_valid = self.repeats.count <= MAX_REPEATS && self.weight <= MAX_SAMPLE_WEIGHT;
        is_valid.then_some(())
    }
}
