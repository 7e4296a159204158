//! Stop 9 of 12: a sample is coded against what its chunk holds already.
//!
//! A stack that the chunk has is a number; of another one, the frames are written in which it differs from all that are
//! there. The thread's last stack is not even named.

use std::cell::RefCell;
use std::sync::atomic::AtomicU64;

use crate::base::{Generation, TimeStamp};
use crate::buffer::{ChunkNumber, EntryHead, EntryKind, EntryWriter, LaneHandle, SampleFlags, zigzag};
use crate::sampler::stack_dictionary::{Edition, StackDictionary};
use crate::sampler::stack_frames::StackFrames;
use crate::state::SessionCounts;
use crate::threads::EventLoopState;

/// The stack that a thread's samples repeat until there is another, and where it was written last.
#[derive(Debug, Default)]
pub(super) struct LastStack {
    stack: StackFrames,
    written_in: Option<Edition>,
}

impl LastStack {
    /// Makes this the thread's last stack.
    pub(super) fn set(&mut self, stack: &StackFrames) {
        if self.stack.is_same(stack) {
            self.stack.event_loop = stack.event_loop;
        } else {
            self.stack.copy_from(stack);
            self.written_in = None;
        }
    }
}

/// When a sample is, of which thread, and the CPU time since the thread's sample before, if that is recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleTime {
    pub(super) thread: u64,
    pub(super) time: TimeStamp,
    pub(super) cpu_delta_ns: Option<u64>,
    /// It stands for so many after it, the last of them so much later.
    pub(super) more: u64,
    pub(super) span_ns: u64,
}

/// The memory of what the chunk holds, and that for the entry that is being made.
#[derive(Debug, Default)]
pub(super) struct SampleCoder {
    dictionary: StackDictionary,
    entry: EntryWriter,
}

/// Writes samples to the buffer.
pub(super) struct SampleWriter<'a> {
    pub(super) lane: &'a LaneHandle<'a>,
    pub(super) coder: &'a RefCell<SampleCoder>,
    pub(super) session: Generation,
    pub(super) process_start: TimeStamp,
    pub(super) dropped: &'a AtomicU64,
}

impl SampleWriter<'_> {
    /// Writes a sample with the thread's last stack, which was unwound by this list of modules, and those that it stands for.
    /// Gives how many that are; 0 when there is no room for it.
    pub(super) fn write(&self, sample: SampleTime, modules: u64, last: &mut LastStack) -> u64 {
        let samples = sample.more + 1;
        let mut coder = self.coder.borrow_mut();
        // Another chunk than the dictionary's may be there already, and where that is full, too, there is a new one.
        let is_written =
            self.put(&mut coder, sample, modules, last) || self.put(&mut coder, sample, modules, last) || {
                self.lane.leave_chunk(sample.time);
                coder.dictionary.forget();
                self.put(&mut coder, sample, modules, last)
            };
        if is_written {
            return samples;
        }
        SessionCounts::add(self.dropped, samples);
        0
    }

    fn put(&self, coder: &mut SampleCoder, sample: SampleTime, modules: u64, last: &mut LastStack) -> bool {
        let SampleCoder { dictionary, entry } = coder;
        let Some(chunk) = self.chunk_with_modules(dictionary, sample.time, modules) else { return false };
        let time_ns = sample.time.since_ns(self.process_start);
        let is_known = last.written_in == Some(dictionary.edition());
        let kind = if is_known { EntryKind::Same } else { EntryKind::Sample };
        let head = head(kind, sample, dictionary.time_distance(time_ns), last.stack.event_loop);
        entry.clear();
        if !is_known {
            dictionary.write(&last.stack, entry);
        }
        if self.lane.put_in_chunk(chunk, self.session, sample.time, &head.with(entry.bytes())).is_none() {
            // What was just taken into it is nowhere.
            dictionary.forget();
            return false;
        }
        dictionary.set_last_time(time_ns);
        last.written_in = Some(dictionary.edition());
        true
    }

    /// The chunk that the dictionary speaks of; where it speaks of none, or the modules are others, it begins anew.
    fn chunk_with_modules(
        &self,
        dictionary: &mut StackDictionary,
        now: TimeStamp,
        modules: u64,
    ) -> Option<ChunkNumber> {
        if let Some(chunk) = dictionary.chunk(modules) {
            return Some(chunk);
        }
        let mut entry = EntryHead::new(EntryKind::Modules);
        let chunk = self.lane.put(self.session, now, entry.number(modules))?;
        dictionary.begin(chunk, modules);
        Some(chunk)
    }
}

fn head(kind: EntryKind, sample: SampleTime, time_distance: i64, event_loop: EventLoopState) -> EntryHead {
    let event = match event_loop {
        EventLoopState::Unknown => None,
        EventLoopState::Idle => Some(0),
        EventLoopState::Running(queued) => Some(1 + zigzag(sample.time.signed_since_ns(queued))),
    };
    let flags = SampleFlags::default()
        .with(SampleFlags::HAS_CPU, sample.cpu_delta_ns.is_some())
        .with(SampleFlags::HAS_EVENT, event.is_some())
        .with(SampleFlags::HAS_MORE, sample.more > 0);
    let mut head = EntryHead::new(kind);
    head.number(sample.thread).signed(time_distance).byte(flags.to_byte());
    if let Some(cpu) = sample.cpu_delta_ns {
        head.number(cpu);
    }
    if let Some(event) = event {
        head.number(event);
    }
    if sample.more > 0 {
        head.number(sample.more).number(sample.span_ns);
    }
    head
}
