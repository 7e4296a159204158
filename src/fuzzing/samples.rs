//! Passes arbitrary samples through the real encoder, buffer and decoder.

use std::rc::Rc;

use arbitrary::{Result, Unstructured};

use crate::buffer::{BufferSnapshot, ChunkedBuffer, EntryHead, EntryKind, LaneHandle};
use crate::capture::EventLoopState;
use crate::fuzzing::scripted_source::{PROCESS_START, SERIALS, scripted_source};
use crate::labels::{ContextWords, joined_label_text};
use crate::sampler::{SampleScript, ScriptedFrame, ScriptedSample, ScriptedStack};
use crate::stream::{PlainSample, PlainSamples, RowEvent};
use crate::types::{CATEGORIES, FrameFlags, Generation, NoStack, TimeStamp, Wait};
use crate::unwind::NamedCode;

const SESSION: Generation = ChunkedBuffer::TEST_SESSION;
const CAPACITIES: [u64; 5] = [300, 1 << 10, 4 << 10, 16 << 10, 1 << 20];
const MAX_STEPS: usize = 400;
const MAX_FRAMES: usize = 60;
const MAX_SNAPSHOTS: usize = 4;

/// Bound of native addresses, as signed numbers because processors sign-extend addresses. No
/// processor has more address bits, and a larger distance between two addresses would not fit into
/// the buffer's grammar.
const ADDRESS_END: i64 = 1 << 60;

/// A sample that was written and may still be in the buffer.
#[derive(Clone, Debug)]
struct WrittenSample {
    thread: u64,
    modules: u64,
    rows: Vec<PlainSample>,
}

/// A session driven by a fuzzer's bytes.
struct FuzzedSession<'a> {
    buffer: &'a ChunkedBuffer,
    script: SampleScript<'a>,
    markers: LaneHandle<'a>,
    stacks: [ScriptedStack; SERIALS.len()],
    now: TimeStamp,
    /// Whether the samples were in order of time, so that the oldest chunks are those written
    /// first.
    is_in_order: bool,
    /// Size of the largest chunk.
    chunk_bytes: u64,
    modules: u64,
    written: Vec<WrittenSample>,
    /// Snapshots, each with the number of samples written before it.
    snapshots: Vec<(BufferSnapshot, usize)>,
}

impl<'a> FuzzedSession<'a> {
    fn new(buffer: &'a ChunkedBuffer, capacity: u64) -> Self {
        Self {
            buffer,
            script: SampleScript::new(buffer, SESSION, PROCESS_START),
            markers: buffer.take_lane(),
            stacks: Default::default(),
            now: PROCESS_START,
            is_in_order: true,
            chunk_bytes: capacity / 4,
            modules: 1,
            written: Vec::new(),
            snapshots: Vec::new(),
        }
    }

    fn step(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        match input.int_in_range(0..=15)? {
            0 => self.modules = input.int_in_range(0..=3)?,
            1 => self.script.lane().leave_chunk(self.now),
            2 => {
                let mut counter = EntryHead::new(EntryKind::Counter);
                self.script
                    .lane()
                    .put(SESSION, self.now, counter.number(77).number(5).signed(-1));
            }
            3 => {
                let mut probe = EntryHead::new(EntryKind::EventProbe);
                let more = vec![0; input.int_in_range(0..=500)?];
                self.markers.put(
                    SESSION,
                    self.now,
                    &probe.number(77).number(5).number(0).with(&more),
                );
            }
            4 => self.buffer.discard_old(|| self.now, None),
            5 if input.ratio(1, 4)? => self.buffer.discard_old(|| self.now, Some(self.now)),
            6 if self.snapshots.len() < MAX_SNAPSHOTS => {
                self.snapshots
                    .push((self.buffer.snapshot(), self.written.len()));
            }
            7 => self.buffer.maintain(),
            8 | 9 => self.change_stack(input)?,
            10 => {
                self.change_stack(input)?;
                self.write(input)?;
            }
            _ => self.write(input)?,
        }
        Ok(())
    }

    fn change_stack(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let thread = input.choose_index(SERIALS.len())?;
        if input.ratio(1, 4)? {
            self.stacks[thread] = self.stacks[input.choose_index(SERIALS.len())?].clone();
        } else {
            let stack = &mut self.stacks[thread];
            stack
                .frames
                .truncate(input.int_in_range(0..=stack.frames.len())?);
            for _ in 0..input.int_in_range(0..=8)? {
                if stack.frames.len() < MAX_FRAMES {
                    stack.frames.push(take_frame(input)?);
                }
            }
            stack.is_truncated = input.ratio(1, 8)?;
            stack.is_of_other_stack = input.ratio(1, 8)?;
        }
        let stack = &mut self.stacks[thread];
        stack.context = context(input.int_in_range(0..=3)?);
        stack.event_loop = match input.int_in_range(0..=3)? {
            0 => EventLoopState::Idle,
            1 => EventLoopState::Running(TimeStamp(input.arbitrary::<u16>()?.into())),
            2 => EventLoopState::Running(self.now),
            _ => EventLoopState::Unknown,
        };
        self.script.set_stack(SERIALS[thread], stack);
        Ok(())
    }

    fn write(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let index = input.choose_index(SERIALS.len())?;
        let thread = SERIALS[index];
        let later_ns = u64::from(input.arbitrary::<u16>()?) << input.int_in_range(0..=20)?;
        self.now = self.now.plus_ns(later_ns);
        let earlier_ns = if input.ratio(1, 16)? {
            input.int_in_range(0..=5_000)?
        } else {
            0
        };
        self.is_in_order &= earlier_ns == 0;
        let time = TimeStamp(self.now.0.saturating_sub(earlier_ns)).max(PROCESS_START);
        let cpu_delta_ns = match input.int_in_range(0..=3)? {
            0 => None,
            1 => Some(0),
            2 => Some(input.arbitrary::<u32>()?.into()),
            _ => Some(input.arbitrary::<u64>()? >> 1),
        };
        let more = if input.ratio(1, 4)? {
            input.int_in_range(1..=20)?
        } else {
            0
        };
        let span_ns = if more > 0 {
            input.arbitrary::<u32>()?.into()
        } else {
            0
        };
        // The sampler writes a sample only after the time of its last repeat.
        self.now = self.now.max(time.plus_ns(span_ns));
        let weight = match input.int_in_range(0..=7)? {
            0 => input.int_in_range(2..=1 << 20)?,
            _ => 1,
        };
        let modules = self.modules;
        let sample = ScriptedSample {
            thread,
            time,
            cpu_delta_ns,
            more,
            span_ns,
            first_tick: None,
            weight,
            modules,
        };
        match self.script.write(sample) {
            0 => {
                let bytes = max_bytes(&self.stacks[index]);
                assert!(
                    bytes > self.chunk_bytes,
                    "a sample of at most {bytes} bytes was dropped, although it fits into a chunk"
                );
            }
            samples => {
                assert_eq!(samples, more + 1);
                let rows = expected_rows(&sample, &self.stacks[index]);
                self.written.push(WrittenSample {
                    thread,
                    modules,
                    rows,
                });
            }
        }
        Ok(())
    }

    fn check(&self, snapshot: BufferSnapshot, written: usize) {
        let written = &self.written[..written];
        let is_whole = snapshot.statistics.recycled_chunks == 0;
        check_modules(&snapshot, written);
        let mut source = scripted_source(snapshot, None);
        source.generated_code = NamedCode::of_range(0..u64::MAX);
        let decoded = PlainSamples::decode(&source);
        assert_eq!(decoded.malformed_entries, 0);
        for (thread, rows) in decoded.threads {
            let of_thread = written.iter().filter(|sample| sample.thread == thread);
            let expected: Vec<&PlainSample> = of_thread.flat_map(|sample| &sample.rows).collect();
            if self.is_in_order || is_whole {
                let gone = expected
                    .len()
                    .checked_sub(rows.len())
                    .expect("no more than was written");
                assert!(
                    gone == 0 || !is_whole,
                    "{gone} rows of thread {thread} are missing"
                );
                assert_eq!(
                    rows.iter().collect::<Vec<_>>(),
                    expected[gone..],
                    "of thread {thread}"
                );
            } else {
                let mut expected = expected.into_iter();
                assert!(
                    rows.iter().all(|row| expected.any(|other| other == row)),
                    "of thread {thread}"
                );
            }
        }
    }
}

/// Checks that, in each chunk, the `Modules` entry before a sample has the number of that sample's
/// module list.
fn check_modules(snapshot: &BufferSnapshot, written: &[WrittenSample]) {
    let mut found = Vec::new();
    for chunk in snapshot.chunks() {
        let mut modules = None;
        for block in chunk {
            let mut entry = block.expect("well formed").entry;
            match entry.kind().expect("a kind") {
                EntryKind::Modules => modules = entry.number(),
                EntryKind::Sample | EntryKind::Same => {
                    found.push((entry.number().expect("a thread"), modules.expect("a list")));
                }
                _ => {}
            }
        }
    }
    let mut expected = written.iter().map(|sample| (sample.thread, sample.modules));
    assert!(
        found
            .iter()
            .all(|found| expected.any(|expected| expected == *found)),
        "{found:?}"
    );
}

/// Returns one of some contexts; none for 0.
pub(crate) fn context(number: u64) -> ContextWords {
    match number {
        0 => ContextWords::NONE,
        _ => ContextWords {
            trace: [number, !number],
            span: number,
            labels: [number as u32 % 2, 0, number as u32, 0],
        },
    }
}

/// Returns a stack in the text form that the decoder produces.
fn plain_stack(stack: &ScriptedStack) -> Vec<String> {
    let structure = [
        ("OtherStack", stack.is_of_other_stack),
        ("Truncated", stack.is_truncated),
    ];
    let structure = structure
        .into_iter()
        .filter(|(_, is_there)| *is_there)
        .map(|(name, _)| name.to_owned());
    let frames = stack.frames.iter().map(|frame| match frame {
        ScriptedFrame::Native {
            address,
            is_innermost: true,
        } => format!("at {address:#x}"),
        ScriptedFrame::Native {
            address,
            is_innermost: false,
        } => format!("return {address:#x}"),
        ScriptedFrame::Waiting { address, wait } => format!("waits at {address:#x} {wait:?}"),
        ScriptedFrame::Label {
            category,
            subcategory,
            text,
            dynamic,
        } => {
            format!(
                "label {category} {subcategory} {}",
                joined_label_text(text, dynamic, FrameFlags::NONE)
            )
        }
        ScriptedFrame::Script {
            function,
            line,
            column,
        } => format!("script {function} {line} {column}"),
        ScriptedFrame::LabelsLeftOut => "LabelsLeftOut".to_owned(),
        ScriptedFrame::NoStack(reason) => format!("NoStack({reason:?})"),
    });
    std::iter::once("Root".to_owned())
        .chain(structure)
        .chain(frames)
        .collect()
}

/// Returns an upper bound for the size of a sample with this stack, including the `Modules` entry
/// before it, in bytes.
fn max_bytes(stack: &ScriptedStack) -> u64 {
    const WITHOUT_FRAMES: usize = 180;
    let of_frame = |frame: &ScriptedFrame| match frame {
        ScriptedFrame::Label { text, dynamic, .. } => 10 + text.len() + dynamic.len(),
        _ => 18,
    };
    (WITHOUT_FRAMES + stack.frames.iter().map(of_frame).sum::<usize>()) as u64
}

fn expected_rows(sample: &ScriptedSample, stack: &ScriptedStack) -> Vec<PlainSample> {
    let plain: Rc<[String]> = plain_stack(stack).into();
    let row = |index: u64| {
        let later_ns = match index {
            0 => 0,
            _ => (u128::from(sample.span_ns) * u128::from(index) / u128::from(sample.more)) as u64,
        };
        let time = sample.time.plus_ns(later_ns);
        PlainSample {
            time_ns: time.since_ns(PROCESS_START),
            cpu_delta_ns: sample
                .cpu_delta_ns
                .map(|cpu_ns| if index == 0 { cpu_ns } else { 0 }),
            event: match stack.event_loop {
                EventLoopState::Unknown => RowEvent::Unknown,
                EventLoopState::Idle => RowEvent::Idle,
                EventLoopState::Running(queued) => RowEvent::Running {
                    ns: time.signed_since_ns(queued),
                },
            },
            weight: if index == 0 { sample.weight } else { 1 },
            stack: Rc::clone(&plain),
        }
    };
    (0..=sample.more).map(row).collect()
}

fn take_frame(input: &mut Unstructured<'_>) -> Result<ScriptedFrame> {
    Ok(match input.int_in_range(0..=9)? {
        0 | 1 => {
            let category = input.choose_index(CATEGORIES.len())?;
            let subcategory = input.choose_index(CATEGORIES[category].subcategories.len())? as u8;
            let [text, dynamic] = [take_text(input)?, take_text(input)?];
            ScriptedFrame::Label {
                category: category as u8,
                subcategory,
                text,
                dynamic,
            }
        }
        2 => {
            let (function, line, column) =
                (input.arbitrary()?, input.arbitrary()?, input.arbitrary()?);
            ScriptedFrame::Script {
                function,
                line,
                column,
            }
        }
        3 => match NoStack::from_number(input.int_in_range(0..=999)?) {
            Some(reason) => ScriptedFrame::NoStack(reason),
            None => ScriptedFrame::LabelsLeftOut,
        },
        4 => {
            let address = input.int_in_range(1 - ADDRESS_END..=ADDRESS_END - 1)? as u64;
            ScriptedFrame::Native {
                address,
                is_innermost: input.arbitrary()?,
            }
        }
        // Addresses in one library, so that some repeat.
        _ => {
            let address = 0x7f00_0000_0000 + u64::from(input.arbitrary::<u8>()?) * 16;
            if let Some(wait) = Wait::from_byte(input.int_in_range(0..=31)?) {
                return Ok(ScriptedFrame::Waiting { address, wait });
            }
            ScriptedFrame::Native {
                address,
                is_innermost: input.ratio(1, 8)?,
            }
        }
    })
}

fn take_text(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let length = input.int_in_range(0..=input.len().min(12))?;
    let text = input.bytes(length)?;
    // Sometimes larger than a small chunk.
    Ok(if input.ratio(1, 32)? {
        text.repeat(100)
    } else {
        text.to_vec()
    })
}

/// Checks that all samples still in the buffer have the stacks, times and CPU times with which they
/// were written.
pub fn check_samples(input: &[u8]) {
    let mut input = Unstructured::new(input);
    let Ok(&capacity) = input.choose(&CAPACITIES) else {
        return;
    };
    let buffer = ChunkedBuffer::for_test(capacity);
    let mut session = FuzzedSession::new(&buffer, capacity);
    for _ in 0..MAX_STEPS {
        // The session ends with the input.
        if input.is_empty() || session.step(&mut input).is_err() {
            break;
        }
    }
    session
        .snapshots
        .push((buffer.snapshot(), session.written.len()));
    for (snapshot, written) in std::mem::take(&mut session.snapshots) {
        session.check(snapshot, written);
    }
}
