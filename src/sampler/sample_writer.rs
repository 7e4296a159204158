//! Stop 9 of 12: a sample is coded against what its chunk holds already.
//!
//! A stack that is the same, frame for frame, as the thread's last one in the chunk is not written again.

use std::sync::atomic::AtomicU64;

use crate::base::{Generation, StackAddress, TimeStamp};
use crate::buffer::{ChunkNumber, ChunkedBuffer, EntryHead, EntryKind, EntryWriter, SampleFlags, zigzag};
use crate::sampler::merge::{MergedFrame, merge_stacks};
use crate::state::SessionCounts;
use crate::threads::{CapturedView, EventLoopState};
use crate::unwind::NativeStack;

/// A stack as it goes into the buffer: its coded runs of frames, whether some are missing, and what the thread's event
/// loop did.
#[derive(Debug, Default)]
pub(super) struct CodedStack {
    runs: EntryWriter,
    flags: SampleFlags,
    event_loop: EventLoopState,
}

/// The stack that a thread's samples repeat until there is another, and where it was written last.
#[derive(Debug, Default)]
pub(super) struct LastStack {
    coded: Vec<u8>,
    flags: SampleFlags,
    event_loop: EventLoopState,
    chunk: Option<ChunkNumber>,
    /// The version of the modules that its addresses were written under.
    modules: u64,
}

impl LastStack {
    /// Under other modules it is written again, since the same addresses may mean something else.
    pub(super) fn follow_modules(&mut self, version: u64) {
        if std::mem::replace(&mut self.modules, version) != version {
            self.chunk = None;
        }
    }

    /// Makes this the thread's last stack.
    pub(super) fn set(&mut self, stack: &CodedStack) {
        if self.coded != stack.runs.bytes() || self.flags != stack.flags {
            self.coded.clear();
            self.coded.extend_from_slice(stack.runs.bytes());
            self.flags = stack.flags;
            self.chunk = None;
        }
        self.event_loop = stack.event_loop;
    }
}

/// When a sample is, of which thread, and the CPU time since the thread's sample before, if that is recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleTime {
    pub(super) thread: u64,
    pub(super) time: TimeStamp,
    pub(super) cpu_delta_ns: Option<u64>,
}

/// Writes samples to the buffer.
pub(super) struct SampleWriter<'a> {
    pub(super) buffer: &'a ChunkedBuffer,
    pub(super) session: Generation,
    pub(super) process_start: TimeStamp,
    pub(super) dropped: &'a AtomicU64,
}

impl SampleWriter<'_> {
    /// Writes a sample with the thread's last stack, which stands for `more` after it. Gives how many that are; 0 when there
    /// is no room for it.
    pub(super) fn repeat(&self, sample: SampleTime, more: u64, span_ns: u64, last: &mut LastStack) -> u64 {
        let head = |kind| self.head(kind, sample, more, span_ns, last);
        if let Some(chunk) = last.chunk {
            let head = head(EntryKind::Same);
            if self.buffer.put_in_chunk(self.session, chunk, sample.time, &[head.bytes()]).is_some() {
                return more + 1;
            }
        }
        let head = head(EntryKind::Sample);
        last.chunk = self.buffer.put(self.session, sample.time, &[head.bytes(), &last.coded]);
        if last.chunk.is_none() {
            SessionCounts::add(self.dropped, more + 1);
            return 0;
        }
        more + 1
    }

    fn head(
        &self,
        kind: EntryKind,
        sample: SampleTime,
        more: u64,
        span_ns: u64,
        last: &LastStack,
    ) -> EntryHead {
        let event = match last.event_loop {
            EventLoopState::Unknown => None,
            EventLoopState::Idle => Some(0),
            EventLoopState::Running(queued) => Some(1 + zigzag(sample.time.signed_since_ns(queued))),
        };
        let flags = last
            .flags
            .with(SampleFlags::HAS_CPU, sample.cpu_delta_ns.is_some())
            .with(SampleFlags::HAS_EVENT, event.is_some())
            .with(SampleFlags::HAS_MORE, more > 0);
        let head = EntryHead::new(kind)
            .number(sample.thread)
            .number(sample.time.since_ns(self.process_start))
            .byte(flags.to_byte());
        let head = match sample.cpu_delta_ns {
            Some(cpu) => head.number(cpu),
            None => head,
        };
        let head = match event {
            Some(event) => head.number(event),
            None => head,
        };
        if more > 0 { head.number(more).number(span_ns) } else { head }
    }
}

impl CodedStack {
    pub(super) fn is_truncated(&self) -> bool {
        self.flags.has(SampleFlags::TRUNCATED)
    }

    pub(super) fn is_of_other_stack(&self) -> bool {
        self.flags.has(SampleFlags::OTHER_STACK)
    }

    /// A stack without frames.
    pub(super) fn set_empty(&mut self, event_loop: EventLoopState) {
        self.runs.clear().number(0);
        self.flags = SampleFlags::default();
        self.event_loop = event_loop;
    }

    /// Merges and codes a captured stack.
    pub(super) fn set(
        &mut self,
        native: &NativeStack,
        view: &CapturedView<'_>,
        merged: &mut Vec<MergedFrame>,
    ) {
        let labels: &[_] = view.labels();
        let addresses = labels.iter().map(|label| -> StackAddress { label.stack_address });
        merge_stacks(&native.frames, addresses, merged);
        self.flags = SampleFlags::default()
            .with(SampleFlags::TRUNCATED, native.truncated)
            .with(SampleFlags::OTHER_STACK, view.header().on_other_stack)
            .with(SampleFlags::LABELS_LEFT_OUT, view.header().labels_left_out);
        self.event_loop = view.header().event_loop;
        let is_native = |frame: &MergedFrame| matches!(frame, MergedFrame::Native(_));
        let runs = || merged.chunk_by(|one, next| is_native(one) == is_native(next));
        self.runs.clear().number(runs().count() as u64);
        let mut before = 0;
        for run in runs() {
            self.runs.number((run.len() as u64) << 1 | u64::from(!is_native(&run[0])));
            for frame in run {
                match *frame {
                    MergedFrame::Native(index) => {
                        let address = native.frames[index].address.get();
                        self.runs.signed(address.wrapping_sub(before) as i64);
                        before = address;
                    }
                    MergedFrame::Label(index) => {
                        let label = &labels[index];
                        self.runs.byte(label.flags.to_byte());
                        if let Some(place) = label.script() {
                            let (line, column) = (place.line().into(), place.column().into());
                            self.runs.number(place.function().into()).number(line).number(column);
                        } else {
                            let (text, dynamic) = view.texts_of(label);
                            self.runs.byte(label.category).byte(label.subcategory).text(text).text(dynamic);
                        }
                    }
                }
            }
        }
    }
}
