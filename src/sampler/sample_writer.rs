//! Stop 9 of 12: a sample is coded against what its chunk holds already.
//!
//! A stack that is the same, frame for frame, as the thread's last one in the chunk is not written again.

use std::sync::atomic::AtomicU64;

use crate::base::{StackAddress, TimeStamp};
use crate::buffer::{ChunkNumber, ChunkedBuffer, EntryHead, EntryKind, EntryWriter, SampleFlags};
use crate::sampler::merge::{MergedFrame, merge_stacks};
use crate::state::SessionCounts;
use crate::threads::CapturedView;
use crate::unwind::NativeStack;

/// A stack as it goes into the buffer: its coded runs of frames, and whether older ones are missing.
#[derive(Debug, Default)]
pub(super) struct CodedStack {
    runs: EntryWriter,
    truncated: bool,
}

/// The stack that a thread's samples repeat until there is another, and where it was written last.
#[derive(Debug, Default)]
pub(super) struct LastStack {
    coded: Vec<u8>,
    truncated: bool,
    chunk: Option<ChunkNumber>,
}

impl LastStack {
    pub(super) fn is_known(&self) -> bool {
        !self.coded.is_empty()
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
    pub(super) process_start: TimeStamp,
    pub(super) dropped: &'a AtomicU64,
}

impl SampleWriter<'_> {
    /// Writes a sample with a new stack, which becomes the thread's last one.
    pub(super) fn write(&self, sample: SampleTime, stack: &CodedStack, last: &mut LastStack) {
        if last.coded != stack.runs.bytes() || last.truncated != stack.truncated {
            last.coded.clear();
            last.coded.extend_from_slice(stack.runs.bytes());
            last.truncated = stack.truncated;
            last.chunk = None;
        }
        self.repeat(sample, last);
    }

    /// Writes a sample with the thread's last stack.
    pub(super) fn repeat(&self, sample: SampleTime, last: &mut LastStack) {
        if let Some(chunk) = last.chunk {
            let head = self.head(EntryKind::Same, sample, last.truncated);
            if self.buffer.put_in_chunk(chunk, sample.time, &[head.bytes()]).is_some() {
                return;
            }
        }
        let head = self.head(EntryKind::Sample, sample, last.truncated);
        last.chunk = self.buffer.put(sample.time, &[head.bytes(), &last.coded]);
        if last.chunk.is_none() {
            SessionCounts::add(self.dropped, 1);
        }
    }

    fn head(&self, kind: EntryKind, sample: SampleTime, truncated: bool) -> EntryHead {
        let flags = SampleFlags::default()
            .with(SampleFlags::TRUNCATED, truncated)
            .with(SampleFlags::HAS_CPU, sample.cpu_delta_ns.is_some());
        let head = EntryHead::new(kind)
            .number(sample.thread)
            .number(sample.time.since_ns(self.process_start))
            .byte(flags.to_byte());
        match sample.cpu_delta_ns {
            Some(cpu) => head.number(cpu),
            None => head,
        }
    }
}

impl CodedStack {
    /// A stack without frames.
    pub(super) fn set_empty(&mut self) {
        self.runs.clear().number(0);
        self.truncated = false;
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
        self.truncated = native.truncated;
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
                        let (text, dynamic) = view.texts_of(label);
                        self.runs.byte(label.category).byte(label.subcategory).text(text).text(dynamic);
                    }
                }
            }
        }
    }
}
