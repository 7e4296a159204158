//! Stop 9 of 12: a sample is coded against what its chunk holds already.
//!
//! A stack that the chunk has is a number; of another one, the frames are written in which it differs from all that are
//! there. The thread's last stack is not even named.

use std::cell::RefCell;
use std::sync::atomic::AtomicU64;

use crate::base::{Generation, TimeStamp};
use crate::buffer::{
    ChunkNumber, EntryHead, EntryKind, EntryWriter, LaneHandle, SampleFlags, zigzag,
};
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

/// What is kept from sample to sample: what the chunk holds, and memory for the entry that is being made.
#[derive(Debug, Default)]
pub(super) struct SampleCoder {
    dictionary: StackDictionary,
    entry: EntryWriter,
    /// The last moment that any sample tells of. A run begins long before it is written, and a chunk is as old as what it
    /// tells of last.
    latest: TimeStamp,
}

/// So long a sample is at the most without its stack, with the list of modules before it.
const MOST_HEAD_BYTES: usize = 96;

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
        coder.latest = coder.latest.max(sample.time.plus_ns(sample.span_ns));
        if self.put_in_some_chunk(&mut coder, |coder| self.put(coder, sample, modules, last)) {
            return samples;
        }
        SessionCounts::add(self.dropped, samples);
        0
    }

    fn put(
        &self,
        coder: &mut SampleCoder,
        sample: SampleTime,
        modules: u64,
        last: &mut LastStack,
    ) -> bool {
        let SampleCoder {
            dictionary,
            entry,
            latest,
        } = coder;
        let Some(chunk) = self.chunk_with_modules(dictionary, *latest, modules) else {
            return false;
        };
        let time_ns = sample.time.since_ns(self.process_start);
        let is_known = last.written_in == Some(dictionary.edition());
        let kind = if is_known {
            EntryKind::Same
        } else {
            EntryKind::Sample
        };
        let head = head(
            kind,
            sample,
            dictionary.time_distance(time_ns),
            last.stack.event_loop,
        );
        entry.clear();
        if !is_known {
            dictionary.write(&last.stack, entry);
        }
        if self
            .lane
            .put_in_chunk(chunk, self.session, *latest, &head.with(entry.bytes()))
            .is_none()
        {
            // What was just taken into it is nowhere.
            dictionary.forget();
            return false;
        }
        dictionary.set_last_time(time_ns);
        last.written_in = Some(dictionary.edition());
        true
    }

    /// Writes the stack of a marker, by its number, unwound by this list of modules; false when there is no room for it.
    pub(super) fn write_backtrace(
        &self,
        number: u64,
        time: TimeStamp,
        modules: u64,
        stack: &StackFrames,
    ) -> bool {
        let mut coder = self.coder.borrow_mut();
        coder.latest = coder.latest.max(time);
        let mut head = EntryHead::new(EntryKind::Backtrace);
        head.number(number)
            .number(time.since_ns(self.process_start));
        self.put_in_some_chunk(&mut coder, |coder| {
            self.put_backtrace(coder, &head, modules, stack)
        })
    }

    /// Tries again where there was no room: another chunk than the dictionary's may be there already, and where that is full, too,
    /// there is a new one.
    fn put_in_some_chunk(
        &self,
        coder: &mut SampleCoder,
        mut put: impl FnMut(&mut SampleCoder) -> bool,
    ) -> bool {
        put(coder)
            || put(coder)
            || (self
                .lane
                .may_put(MOST_HEAD_BYTES + coder.entry.bytes().len())
                && {
                    self.lane.leave_chunk(coder.latest);
                    coder.dictionary.forget();
                    put(coder)
                })
    }

    fn put_backtrace(
        &self,
        coder: &mut SampleCoder,
        head: &EntryHead,
        modules: u64,
        stack: &StackFrames,
    ) -> bool {
        let SampleCoder {
            dictionary,
            entry,
            latest,
        } = coder;
        let Some(chunk) = self.chunk_with_modules(dictionary, *latest, modules) else {
            return false;
        };
        entry.clear();
        dictionary.write(stack, entry);
        let is_put = self
            .lane
            .put_in_chunk(chunk, self.session, *latest, &head.with(entry.bytes()))
            .is_some();
        if !is_put {
            // What was just taken into it is nowhere.
            dictionary.forget();
        }
        is_put
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

fn head(
    kind: EntryKind,
    sample: SampleTime,
    time_distance: i64,
    event_loop: EventLoopState,
) -> EntryHead {
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
    head.number(sample.thread)
        .signed(time_distance)
        .byte(flags.to_byte());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::ChunkedBuffer;
    use crate::sampler::rest::{Rest, Tick};

    const SESSION: Generation = ChunkedBuffer::TEST_SESSION;
    const MODULES: u64 = 1;
    const SECOND_NS: u64 = 1_000_000_000;

    /// A writer with a buffer of its own, which stays.
    struct Writing {
        buffer: &'static ChunkedBuffer,
        lane: LaneHandle<'static>,
        coder: RefCell<SampleCoder>,
        dropped: AtomicU64,
    }

    impl Writing {
        fn new(capacity_bytes: u64) -> Self {
            let buffer: &'static _ = Box::leak(Box::new(ChunkedBuffer::for_test(capacity_bytes)));
            let lane = buffer.take_lane_for_samples();
            Self {
                buffer,
                lane,
                coder: RefCell::default(),
                dropped: AtomicU64::new(0),
            }
        }

        fn write(&self, sample: SampleTime, last: &mut LastStack) {
            let Self {
                lane,
                coder,
                dropped,
                ..
            } = self;
            let writer = SampleWriter {
                lane,
                coder,
                session: SESSION,
                process_start: TimeStamp(0),
                dropped,
            };
            assert_eq!(writer.write(sample, MODULES, last), sample.more + 1);
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
        last.set(&StackFrames::of_addresses(&addresses));
        last
    }

    fn sample(thread: u64, first: TimeStamp, last: TimeStamp, ticks: u64) -> SampleTime {
        let span_ns = last.since_ns(first);
        SampleTime {
            thread,
            time: first,
            cpu_delta_ns: Some(0),
            more: ticks - 1,
            span_ns,
        }
    }

    #[test]
    fn an_hour_of_sleep_takes_a_kilobyte() {
        const INTERVAL_NS: u64 = 1_000_000;
        let writing = Writing::new(128 << 20);
        let mut last = sleeping(1);
        let tick = |number| Tick {
            number,
            time: TimeStamp(number * INTERVAL_NS),
        };
        let mut rest = Rest::new(0, None, tick(0), INTERVAL_NS);
        let (mut ticks, mut runs, mut longest_ns) = (0, 0, 0);
        // With a thousand threads, each one's turn is once a second.
        for number in (1000..=3_600_000).step_by(1000) {
            if rest.is_overdue(tick(number).time) {
                let run = rest.take_run(tick(number), INTERVAL_NS).expect("ticks");
                writing.write(sample(1, run.first, run.last, run.ticks), &mut last);
                longest_ns = longest_ns.max(run.last.since_ns(run.first));
                (ticks, runs) = (ticks + run.ticks, runs + 1);
            }
        }
        let bytes = writing.put_bytes();
        assert!(ticks >= 3_600_000 - 65_000, "{ticks}");
        assert!(longest_ns <= 65 * SECOND_NS, "{longest_ns}");
        assert!(runs <= 80 && bytes <= 1400, "{runs} runs, {bytes} bytes");
    }

    #[test]
    fn a_chunk_that_another_entry_begins_is_filled() {
        let writing = Writing::new(1 << 20);
        let mut last = sleeping(1);
        // Most of what is put are counters, so that they begin the chunks.
        for number in 1..60_000 {
            let time = TimeStamp(number * 1_000_000);
            writing.put_counter(time);
            if number % 50 == 0 {
                writing.write(sample(1, time, time, 1), &mut last);
            }
        }
        let chunks = writing.buffer.snapshot().chunks().len() as u64;
        let full_chunks = writing.put_bytes() / (256 << 10);
        assert!((2..4).contains(&full_chunks), "{full_chunks}");
        assert_eq!(chunks, full_chunks + 1);
    }

    #[test]
    fn a_chunk_is_as_old_as_what_it_tells_of_last() {
        const CAPACITY: u64 = 64 << 10;
        let writing = Writing::new(CAPACITY);
        let (mut sleeper, mut busy) = (sleeping(1), sleeping(2));
        // Chunks end with samples of now and begin with runs that go far back.
        let mut now = TimeStamp(60 * SECOND_NS);
        while writing.put_bytes() < CAPACITY * 2 / 3 {
            now = now.plus_ns(1_000_000);
            writing.write(sample(1, TimeStamp(0), now, 60_000), &mut sleeper);
            writing.write(sample(2, now, now, 1), &mut busy);
        }
        writing
            .buffer
            .discard_old(|| now, Some(TimeStamp(60 * SECOND_NS)));
        let snapshot = writing.buffer.snapshot();
        assert!(snapshot.chunks().len() > 2);
        assert_eq!(
            (
                snapshot.statistics.recycled_chunks,
                snapshot.complete_since()
            ),
            (0, None)
        );
        writing.buffer.discard_old(|| now, Some(now));
        let complete_since = writing.buffer.snapshot().complete_since();
        assert!(
            complete_since.is_some_and(|time| time > TimeStamp(60 * SECOND_NS)),
            "{complete_since:?}"
        );
    }
}
