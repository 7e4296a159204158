//! A sample before its stack, with its repeats while the thread sleeps, and the gaps between the
//! sampler's ticks that divide these. The sampler writes them, and the decoder reads them.

use crate::buffer::entries::entry_kind::{EntryKind, SampleFlags};
use crate::buffer::entries::entry_reader::EntryReader;
use crate::buffer::entries::entry_writer::EntryHead;

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
    pub(crate) rare: RareFields,
}

/// Fields that few samples have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RareFields {
    /// The state of the thread's event loop, if it has one.
    pub(crate) event: Option<u64>,
    pub(crate) repeats: Repeats,
    /// Number of ticks that the sample counts for: its own, and those left out after it.
    pub(crate) weight: u64,
}

impl Default for RareFields {
    fn default() -> Self {
        Self {
            event: None,
            repeats: Repeats::default(),
            weight: 1,
        }
    }
}

impl SampleFields {
    /// Returns the beginning of an entry of this kind.
    pub(crate) fn entry(&self, kind: EntryKind) -> EntryHead {
        let RareFields {
            event,
            repeats,
            weight,
        } = self.rare;
        let first_tick = repeats.first_tick.filter(|_| repeats.count > 0);
        let flags = SampleFlags::default()
            .with(SampleFlags::HAS_CPU, self.cpu_delta_ns.is_some())
            .with(SampleFlags::HAS_EVENT, event.is_some())
            .with(SampleFlags::HAS_MORE, repeats.count > 0)
            .with(SampleFlags::HAS_WEIGHT, weight != 1)
            .with(SampleFlags::HAS_TICK, first_tick.is_some());
        let mut entry = EntryHead::new(kind);
        entry
            .number(self.thread)
            .signed(self.distance_ns)
            .byte(flags.to_byte());
        for number in [self.cpu_delta_ns, event].into_iter().flatten() {
            entry.number(number);
        }
        if repeats.count > 0 {
            entry.number(repeats.count).number(repeats.span_ns);
        }
        if let Some(tick) = first_tick {
            entry.number(tick);
        }
        if weight != 1 {
            entry.number(weight.min(MAX_SAMPLE_WEIGHT));
        }
        entry
    }

    /// Reads the fields of a sample, after the kind of its entry.
    pub(crate) fn read(entry: &mut EntryReader<'_>) -> Option<Self> {
        let (mut fields, flags) = Self::read_frequent(entry)?;
        if flags.has_rare_fields() {
            fields.rare = RareFields::read(entry, flags)?;
        }
        Some(fields)
    }

    /// Reads the fields of a sample without rare ones. Returns `None` for any other sample.
    #[inline(always)]
    pub(crate) fn read_plain(entry: &mut EntryReader<'_>) -> Option<Self> {
        let (fields, flags) = Self::read_frequent(entry)?;
        (!flags.has_rare_fields()).then_some(fields)
    }

    #[inline(always)]
    fn read_frequent(entry: &mut EntryReader<'_>) -> Option<(Self, SampleFlags)> {
        let (thread, distance_ns) = (entry.number()?, entry.signed()?);
        let flags = SampleFlags::from_byte(entry.byte()?);
        let cpu_delta_ns = if flags.has(SampleFlags::HAS_CPU) {
            Some(entry.number()?)
        } else {
            None
        };
        let fields = Self {
            thread,
            distance_ns,
            cpu_delta_ns,
            rare: RareFields::default(),
        };
        Some((fields, flags))
    }
}

impl RareFields {
    #[cold]
    fn read(entry: &mut EntryReader<'_>, flags: SampleFlags) -> Option<Self> {
        let has_more = flags.has(SampleFlags::HAS_MORE);
        // `None` for an entry that is too short.
        let mut number = |is_there| match is_there {
            true => entry.number().map(Some),
            false => Some(None),
        };
        let fields = Self {
            event: number(flags.has(SampleFlags::HAS_EVENT))?,
            repeats: Repeats {
                count: number(has_more)?.unwrap_or(0),
                span_ns: number(has_more)?.unwrap_or(0),
                first_tick: number(has_more && flags.has(SampleFlags::HAS_TICK))?,
            },
            weight: number(flags.has(SampleFlags::HAS_WEIGHT))?.unwrap_or(1),
        };
        let is_valid = fields.repeats.count <= MAX_REPEATS && fields.weight <= MAX_SAMPLE_WEIGHT;
        is_valid.then_some(fields)
    }
}
