//! What a profile of a process that has ended takes from its crash file, where a profile of this
//! process asks the registries of this process.

use crate::buffer::{Block, BufferSnapshot, EntryKind};
use crate::markers::{DecodedMarker, DescribedType};
use crate::types::{CategoryInfo, ScriptDescription, TimeStamp};
use crate::util::NumberMap;

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
