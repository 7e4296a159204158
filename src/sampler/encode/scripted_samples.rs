//! Writes samples with made-up stacks through the real writer.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::buffer::{ChunkedBuffer, LaneHandle, Repeats};
use crate::sampler::encode::sample_writer::{LastStack, SampleEncoder, SampleTime, SampleWriter};
use crate::sampler::encode::scripted_stack::ScriptedStack;
use crate::sampler::encode::stored_stack::StoredStack;
use crate::types::{Generation, TimeStamp};
use crate::waiting_tasks::WaitRow;

/// A sample, and the number of samples that repeat it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScriptedSample {
    pub(crate) thread: u64,
    pub(crate) time: TimeStamp,
    pub(crate) cpu_delta_ns: Option<u64>,
    pub(crate) more: u64,
    pub(crate) span_ns: u64,
    pub(crate) first_tick: Option<u64>,
    /// Number of ticks that the first sample counts for.
    pub(crate) weight: u64,
    /// Number of the module list.
    pub(crate) modules: u64,
}

/// Writes scripted samples as the sampler would: keeps each thread's last stack and the encoder.
pub(crate) struct SampleScript<'a> {
    lane: LaneHandle<'a>,
    session: Generation,
    process_start: TimeStamp,
    encoder: RefCell<SampleEncoder>,
    last_stacks: HashMap<u64, LastStack>,
}

impl<'a> SampleScript<'a> {
    pub(crate) fn new(
        buffer: &'a ChunkedBuffer,
        session: Generation,
        process_start: TimeStamp,
    ) -> Self {
        Self {
            lane: buffer.take_lane_for_samples(),
            session,
            process_start,
            encoder: RefCell::default(),
            last_stacks: HashMap::new(),
        }
    }

    /// Returns the lane of the samples, for other entries that the sampler writes.
    pub(crate) fn lane(&self) -> &LaneHandle<'a> {
        &self.lane
    }

    /// Sets the stack of the thread's next samples.
    pub(crate) fn set_stack(&mut self, thread: u64, stack: &ScriptedStack) {
        let mut frames = StoredStack::default();
        frames.set_scripted(stack);
        let last = self.last_stacks.entry(thread).or_default();
        assert!(last.try_set(&frames), "there is memory");
    }

    /// Writes the marker stack with this number. Returns false if the buffer has no space.
    pub(crate) fn write_backtrace(
        &mut self,
        number: u64,
        time: TimeStamp,
        modules: u64,
        stack: &ScriptedStack,
    ) -> bool {
        let mut frames = StoredStack::default();
        frames.set_scripted(stack);
        self.writer()
            .write_backtrace(number, time, modules, &frames)
    }

    /// Writes a row of waiting tasks. Returns false if the buffer has no space.
    pub(crate) fn write_wait(
        &mut self,
        row: &WaitRow,
        modules: u64,
        stack: &ScriptedStack,
    ) -> bool {
        let mut frames = StoredStack::default();
        frames.set_scripted(stack);
        self.writer().write_wait(row, modules, &frames)
    }

    fn writer(&self) -> SampleWriter<'_> {
        SampleWriter {
            lane: &self.lane,
            encoder: &self.encoder,
            session: self.session,
            process_start: self.process_start,
        }
    }

    /// Writes a sample with the thread's stack, and the samples that repeat it. Returns the number
    /// of samples written; 0 if the buffer has no space.
    pub(crate) fn write(&mut self, sample: ScriptedSample) -> u64 {
        let ScriptedSample {
            thread,
            time,
            cpu_delta_ns,
            more,
            span_ns,
            first_tick,
            weight,
            modules,
        } = sample;
        let mut last = self.last_stacks.remove(&thread).unwrap_or_default();
        let sample = SampleTime {
            thread,
            time,
            cpu_delta_ns,
            repeats: Repeats {
                count: more,
                span_ns,
                first_tick,
            },
            weight,
        };
        let written = self.writer().write(sample, modules, &mut last);
        self.last_stacks.insert(thread, last);
        written
    }
}
