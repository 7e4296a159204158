//! The context that the sampler passes to each thread's step of a tick, the unwinding of captures,
//! and the durations of a tick's steps.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::backtrace::CapturedBacktrace;
use crate::buffer::{EntryHead, EntryKind};
use crate::capture::CapturedView;
use crate::platform::monotonic_now;
use crate::sampler::encode::{MergedFrame, SampleRun, SampleWriter, StoredStack, Tick};
use crate::state::{SeenPauses, Session, SessionCounts};
use crate::types::{Features, ProcessId, TimeStamp};
use crate::unwind::{Captured, MAX_FRAMES, NativeStack, StackCopy, Unwinder};

/// Of this many stacks, one is unwound twice. The second unwinding measures the unwinder itself,
/// without the processor's cache misses.
const STACKS_PER_REPETITION: u64 = 64;

static REPEATS_UNWINDING: AtomicBool = AtomicBool::new(false);

/// Makes the sampler unwind every 64th stack twice and count the time of the second unwinding.
#[cfg(feature = "unwind_benchmark")]
pub fn repeat_unwinding() {
    REPEATS_UNWINDING.store(true, Ordering::Relaxed);
}

/// The context that the sampler passes to each thread's step of a tick.
pub(crate) struct TickContext<'a> {
    pub(crate) session: &'a Session,
    pub(crate) process: ProcessId,
    pub(crate) unwinder: Unwinder,
    pub(crate) writer: SampleWriter<'a>,
    pub(crate) scratch: Scratch,
    pub(crate) tick: Tick,
    pub(crate) tick_before: Tick,
    /// The last tick of the schedule before this one, which may have been left out.
    pub(crate) last_before: Tick,
    /// Number of the tick since which the ticks have had no gap.
    pub(crate) even_since: u64,
    pub(crate) pauses: SeenPauses,
    /// Whether the profiler's handler is installed, so that a signal reaches it.
    pub(crate) is_handler_in_place: bool,
}

impl TickContext<'_> {
    pub(crate) fn interval_ns(&self) -> u64 {
        self.session.settings.interval.as_nanos() as u64
    }

    /// Returns how many ticks of the session were left out up to this tick, to limit the sampler's CPU
    /// time.
    pub(crate) fn skipped_ticks(&self) -> u64 {
        self.session.counts.skipped_ticks.load(Ordering::Relaxed)
    }

    /// Returns how many ticks were left out up to the tick before this one.
    pub(crate) fn skipped_before(&self) -> u64 {
        let since_then = self.last_before.number - self.tick_before.number;
        self.skipped_ticks().saturating_sub(since_then)
    }

    /// Writes an entry to the buffer.
    pub(crate) fn put(&self, time: TimeStamp, entry: &EntryHead) {
        (self.writer.lane).put(self.session.generation, time, entry);
    }

    /// Returns whether a thread may be asked for a sample: the handler is in place, and the session
    /// is not stopping. After a session has stopped, another one may use the threads' slots.
    pub(crate) fn may_request(&self) -> bool {
        self.is_handler_in_place && !self.session.is_stopping()
    }

    /// Returns the part of a run before the next pause, which may have begun during this tick.
    /// Returns `None` if the run began before sampling last resumed.
    pub(crate) fn unpaused_part(&self, run: SampleRun) -> Option<SampleRun> {
        if run.first < self.pauses.since {
            return None;
        }
        match self.session.pauses.until(&self.pauses) {
            None => Some(run),
            Some(end) => run.before(end),
        }
    }
}

/// Memory that is reused from sample to sample.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) native: NativeStack,
    pub(crate) merged: Vec<MergedFrame>,
    pub(crate) stack: StoredStack,
}

impl Scratch {
    /// Makes space for the stack of a capture, unwound, merged and stored. Returns false if there is
    /// no memory.
    pub(crate) fn try_reserve(&mut self, view: &CapturedView<'_>) -> bool {
        // Each caller's frame has at least its return address.
        let frames = (view.stack().len() / size_of::<u64>() + 1).min(MAX_FRAMES);
        let (labels, text_bytes) = (view.labels().len(), view.header().text_bytes);
        self.try_reserve_for(frames, labels, text_bytes)
    }

    /// Makes space for the stack of a marker, likewise.
    pub(crate) fn try_reserve_for_backtrace(&mut self, backtrace: &CapturedBacktrace) -> bool {
        let walked = backtrace.stack().len() / size_of::<u64>() + 1;
        let given = backtrace.return_addresses().map_or(0, <[u64]>::len);
        let (mut labels, mut text_bytes) = (0, 0);
        for label in backtrace.labels() {
            labels += 1;
            text_bytes += label.text.len() + label.dynamic.len();
        }
        let frames = walked.max(given).min(MAX_FRAMES.max(given));
        self.try_reserve_for(frames, labels, text_bytes)
    }

    fn try_reserve_for(&mut self, frames: usize, labels: usize, text_bytes: usize) -> bool {
        self.native.frames.clear();
        self.merged.clear();
        // One more for the place of labels that are left out.
        let merged = frames + labels + 1;
        self.native.frames.try_reserve(frames).is_ok()
            && self.merged.try_reserve(merged).is_ok()
            && self.stack.try_reserve(merged, labels + 1, text_bytes)
    }
}

pub(crate) fn captured_by<'a>(view: &'a CapturedView<'_>) -> Captured<'a> {
    let header = view.header();
    Captured {
        registers: header.registers,
        stack: StackCopy {
            start: header.stack_start,
            bytes: view.stack(),
        },
        time: header.time,
    }
}

pub(crate) fn captured_of_backtrace(backtrace: &CapturedBacktrace) -> Captured<'_> {
    Captured {
        registers: backtrace.head.registers,
        stack: StackCopy {
            start: backtrace.head.stack_start,
            bytes: backtrace.stack(),
        },
        time: backtrace.head.time,
    }
}

/// Unwinds a copied stack into the scratch memory, as far as the session walks stacks. Returns whether it
/// does; otherwise only the innermost frame is there.
pub(crate) fn unwind_copy(context: &mut TickContext<'_>, captured: &Captured<'_>) -> bool {
    let unwound = unwind_counted(context, |unwinder, native| {
        unwinder.unwind(captured, native)
    });
    if unwound.is_none() {
        let native = &mut context.scratch.native;
        context.unwinder.unwind_innermost(captured, native);
    }
    unwound.is_some()
}

/// Unwinds into the scratch memory and counts the cost. Returns `None` if the session does not walk
/// stacks.
pub(crate) fn unwind_counted<T>(
    context: &mut TickContext<'_>,
    mut unwind: impl FnMut(&mut Unwinder, &mut NativeStack) -> T,
) -> Option<T> {
    let session = context.session;
    if !session.settings.features.contains(Features::STACK_WALK) {
        return None;
    }
    let before = monotonic_now();
    let answer = unwind(&mut context.unwinder, &mut context.scratch.native);
    let counts = &session.counts;
    SessionCounts::add(&counts.unwind_ns, monotonic_now().since_ns(before));
    let frames = context.scratch.native.frames.len() as u64;
    SessionCounts::add(&counts.unwound_stacks, 1);
    SessionCounts::add(&counts.unwound_frames, frames);
    #[cfg(feature = "unwind_benchmark")]
    if REPEATS_UNWINDING.load(Ordering::Relaxed)
        && (counts.unwound_stacks.load(Ordering::Relaxed)).is_multiple_of(STACKS_PER_REPETITION)
    {
        let before = monotonic_now();
        unwind(&mut context.unwinder, &mut context.scratch.native);
        SessionCounts::add(&counts.repeated_unwind_ns, monotonic_now().since_ns(before));
        SessionCounts::add(&counts.repeated_frames, frames);
    }
    Some(answer)
}

/// Number of steps: update modules and threads, sample counters, sample threads, maintain the
/// buffer.
const STEPS: usize = 4;

/// The steps of the current tick, with their durations. `profiler_get_buffer_info` returns the
/// statistics. With `MOZ_PROFILER_RECORD_OVERHEADS`, each tick's durations are also written to the
/// buffer. Cost: five readings of the clock per tick.
pub(crate) struct TickOverheads {
    step_began: TimeStamp,
    steps_ns: [u64; STEPS],
    done: usize,
}

impl TickOverheads {
    pub(crate) fn begin() -> Self {
        Self {
            step_began: monotonic_now(),
            steps_ns: [0; STEPS],
            done: 0,
        }
    }

    /// Ends the current step and starts the next one.
    pub(crate) fn step_done(&mut self) {
        let now = monotonic_now();
        if let Some(step_ns) = self.steps_ns.get_mut(self.done) {
            *step_ns = now.since_ns(self.step_began);
        }
        self.step_began = now;
        self.done += 1;
    }

    /// Adds the tick to the session's statistics, and writes its steps if that is requested.
    pub(crate) fn record(self, context: &TickContext<'_>) {
        let (session, tick, before) = (context.session, context.tick, context.tick_before);
        let [lockings_ns, counters_ns, threads_ns, cleanings_ns] = self.steps_ns;
        let overheads = &session.overheads;
        // No tick precedes the first one.
        if before.number > 0 {
            overheads.intervals.add(tick.time.since_ns(before.time));
        }
        overheads.overheads.add(self.steps_ns.iter().sum());
        overheads.lockings.add(lockings_ns);
        overheads.counters.add(counters_ns);
        overheads.threads.add(threads_ns);
        overheads.cleanings.add(cleanings_ns);
        if !session.settings.records_overheads {
            return;
        }
        let mut entry = EntryHead::new(EntryKind::Overhead);
        entry.number(tick.time.since_ns(session.process_start));
        for step_ns in self.steps_ns {
            entry.number(step_ns);
        }
        context.put(self.step_began, &entry);
    }
}
