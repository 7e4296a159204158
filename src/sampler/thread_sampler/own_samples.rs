//! The samples that a thread takes of itself, on its own CPU time.
//!
//! An event of the thread's CPU clock interrupts it, so its samples are where it used CPU time, however
//! busy the machine is: the sampler's own ticks come when another thread gives up a processor. A
//! thread that never sleeps, or hardly ever, needs no event. A signal on each tick finds it just as
//! well, and costs it less.
//!
//! A thread that sleeps very often gets no event either. The kernel stops the event's timer at each
//! sleep and starts it after each, which takes some 10 µs in a virtual machine: threads that only
//! hand a byte to each other would use four times as much CPU time.
//!
//! Periods are random, so that a thread that works in steps is not found in the same part of each step.

use std::sync::Arc;

use crate::capture::{CaptureHeader, CapturedView, SlotBatch, SlotHandle};
use crate::platform::{RefusedClock, TaskClock, current_process_id, thread_exists};
use crate::sampler::thread_sampler::sample_recorder::SampleRecorder;
use crate::sampler::tick_context::{Scratch, TickContext, captured_by, unwind_copy};
use crate::state::{Session, SessionCounts};
use crate::types::{ThreadId, TimeStamp};
use crate::util::random_below;

/// Number of ticks in a row on which a thread is found running, or to have not slept, after which it
/// needs no event. Also the number of ticks between two looks whether a thread with an event sleeps.
const TICKS_WITHOUT_SLEEP: u32 = 64;
/// Maximum number of ticks between two looks whether a thread without an event sleeps.
const MAX_TICKS_BETWEEN_LOOKS: u32 = 15;
/// Maximum time of the ticks between two looks.
const MAX_NS_BETWEEN_LOOKS: u64 = 1_000_000_000;
/// Maximum number of ticks until a look if a thread that sleeps could have no event.
const TICKS_WITHOUT_EVENT: u32 = 3;
/// Minimum CPU time between two sleeps, on average, for which a thread gets an event, and for which
/// it keeps it.
const STEP_FOR_EVENT_NS: u64 = 200_000;
const STEP_WITH_EVENT_NS: u64 = 150_000;
/// Minimum number of sleeps of which the average is taken.
const SLEEPS_OF_AVERAGE: u64 = 8;
/// Minimum CPU time between two sleeps, of a smaller number, for which a thread gets an event.
const LONG_STEP_NS: u64 = 1_000_000;
/// Captures before the next period is drawn, at a moment at which little is lost, and at any moment.
const CAPTURES_OF_PERIOD: [u64; 2] = [8, 32];
/// CPU time without a capture after which the event counts as silent, in periods.
const SILENT_PERIODS: u64 = 16;

/// How a thread has run since the sampler last looked at it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ran {
    /// For all of the time, so it probably still runs.
    pub(crate) until_now: bool,
    /// For seven eighths of the time or more: its sleeps, if any, are short.
    pub(crate) nearly_always: bool,
    /// For at least half of the time.
    pub(crate) mostly: bool,
}

/// The event of a thread's CPU clock.
#[derive(Debug, Default)]
enum Event {
    #[default]
    None,
    Runs(TaskClock),
    /// For good.
    Refused,
}

/// How often a thread has slept: it may also be absent because it waits for a processor.
#[derive(Debug, Default)]
struct SeenSleeps {
    /// The number of sleeps and the thread's CPU clock at the last look; `None` before the first one.
    last: Option<(u64, u64)>,
    /// Ticks until the next look.
    ticks_left: u32,
    /// Ticks between the last two looks.
    ticks: u32,
    /// Whether they are too frequent for an event.
    are_frequent: bool,
}

/// The event of a thread, and the captures that it causes.
#[derive(Debug, Default)]
pub(crate) struct OwnSamples {
    event: Event,
    batch: Option<SlotBatch>,
    /// State of the random numbers.
    random: u64,
    /// The thread's CPU clock at its last capture, or when the event began.
    captured_at_ns: u64,
    /// Number of the event's signals since the period was drawn.
    signals: u64,
    /// Whether some of them have found no slot since the last look.
    has_overflowed: bool,
    /// Number of ticks in a row on which the thread was found running nearly always.
    running_ticks: u32,
    sleeps: SeenSleeps,
    /// Whether the thread counts as one without an event.
    is_counted: bool,
}

impl OwnSamples {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: seed,
            ..Self::default()
        }
    }

    pub(crate) fn has_event(&self) -> bool {
        matches!(self.event, Event::Runs(_))
    }

    /// Returns whether the event does not interrupt the thread in the kernel.
    pub(crate) fn lacks_kernel(&self) -> bool {
        matches!(&self.event, Event::Runs(clock) if !clock.counts_kernel())
    }

    /// Returns whether the thread may get an event, as far as it was asked for.
    pub(crate) fn may_have_event(&self) -> bool {
        !matches!(self.event, Event::Refused)
    }

    pub(crate) fn has_captures(&self) -> bool {
        (self.batch.as_ref()).is_some_and(|batch| batch.waiting() > 0)
    }

    /// Returns whether the event has interrupted the thread, whose clock reads `cpu_ns`, within its last two
    /// intervals of CPU time.
    pub(crate) fn has_answered(&self, cpu_ns: u64, interval_ns: u64) -> bool {
        let silent_ns = cpu_ns.saturating_sub(self.captured_at_ns);
        self.has_event() && silent_ns <= 2 * interval_ns
    }

    /// Ends the event. Captures that it has caused are still collected.
    pub(crate) fn end_event(&mut self) {
        if self.has_event() {
            self.event = Event::None;
            self.look_soon();
        }
    }

    /// Looks within a few ticks whether the thread sleeps: it did, but has no event, although it does
    /// not sleep too often for one.
    pub(crate) fn look_soon(&mut self) {
        if !self.sleeps.are_frequent {
            self.sleeps.ticks_left = self.sleeps.ticks_left.min(TICKS_WITHOUT_EVENT);
        }
    }

    /// Ends the event, and gives the slots back. Captures in them are lost.
    pub(crate) fn release(&mut self) {
        self.end_event();
        self.batch = None;
    }

    /// Ends an event whose signals do not arrive, and starts no other one.
    pub(crate) fn refuse(&mut self, session: &Session) {
        self.release();
        self.count_as_refused(session);
        self.event = Event::Refused;
    }

    /// Returns whether there are slots for the thread. Counts it if not.
    pub(crate) fn may_have_slots(&mut self, session: &Session) -> bool {
        let may_have = self.batch.is_some() || !SlotBatch::are_all_used();
        if !may_have {
            self.count_as_refused(session);
        }
        may_have
    }

    /// Notes on a tick how the thread has run. Returns whether it sleeps now and then, and needs an
    /// event: `None` while that is not clear.
    pub(crate) fn needs_event(&mut self, ran: Ran) -> Option<bool> {
        let was_running = self.running_ticks > 0;
        self.running_ticks = match ran.nearly_always {
            true => self.running_ticks.saturating_add(1),
            false => 0,
        };
        if self.running_ticks >= TICKS_WITHOUT_SLEEP {
            return Some(false);
        }
        // Once, another thread may have had the processor.
        (!ran.nearly_always && (!ran.mostly || !was_running)).then_some(true)
    }

    /// Returns whether it is time to look whether the thread sleeps. Called once on a tick.
    pub(crate) fn is_time_to_look(&mut self) -> bool {
        let is_time = self.sleeps.ticks_left == 0;
        self.sleeps.ticks_left = self.sleeps.ticks_left.saturating_sub(1);
        is_time
    }

    /// Returns whether the thread has slept since the last look, and worked for long enough between its
    /// sleeps that an event is worth its cost; `None` while that is not clear. `count` is how often it
    /// has slept so far, or `None` if the system does not tell. Its CPU clock reads `cpu_ns`.
    pub(crate) fn look_at_sleeps(
        &mut self,
        count: Option<u64>,
        cpu_ns: u64,
        interval_ns: u64,
    ) -> Option<bool> {
        let has_event = self.has_event();
        let sleeps = &mut self.sleeps;
        let most_ticks = (MAX_NS_BETWEEN_LOOKS / interval_ns.max(1)) as u32;
        let more_ticks = (2 * sleeps.ticks + 1).min(MAX_TICKS_BETWEEN_LOOKS);
        let (answer, ticks) = match (count, sleeps.last) {
            (None, None) => (Some(true), TICKS_WITHOUT_SLEEP),
            (None, Some(_)) => (None, more_ticks),
            (Some(_), None) => (None, 0),
            (Some(count), Some((before, _))) if count == before => (Some(false), more_ticks),
            (Some(count), Some((before, before_ns))) => {
                let number = count.saturating_sub(before).max(1);
                let step_ns = cpu_ns.saturating_sub(before_ns) / number;
                let is_average = number >= SLEEPS_OF_AVERAGE;
                let least_ns = match (is_average, has_event) {
                    (true, false) => STEP_FOR_EVENT_NS,
                    (true, true) => STEP_WITH_EVENT_NS,
                    (false, false) => LONG_STEP_NS,
                    (false, true) => 0,
                };
                sleeps.are_frequent = is_average && step_ns < least_ns;
                match (step_ns >= least_ns, is_average) {
                    (true, _) => (Some(true), TICKS_WITHOUT_SLEEP),
                    (false, true) => (Some(false), MAX_TICKS_BETWEEN_LOOKS),
                    (false, false) => (None, more_ticks),
                }
            }
        };
        // If that is not clear, the sleeps until the next look are added to these.
        if answer.is_some() || sleeps.last.is_none() {
            sleeps.last = count.map(|count| (count, cpu_ns));
        }
        sleeps.ticks = ticks.min(most_ticks);
        sleeps.ticks_left = sleeps.ticks;
        answer
    }

    /// Starts the event of a thread that has none. Its clock reads `cpu_ns`. Returns false if the thread
    /// cannot have one.
    pub(crate) fn start_event(
        &mut self,
        thread: ThreadId,
        slot: &Arc<SlotHandle>,
        cpu_ns: u64,
        context: &TickContext<'_>,
    ) -> bool {
        let session = context.session;
        if self.batch.is_none() {
            self.batch = SlotBatch::acquire(slot);
        }
        let Some(batch) = &self.batch else {
            self.count_as_refused(session);
            return false;
        };
        batch.request_all();
        batch.take_uncaptured();
        let period_ns = self.next_period_ns(context.interval_ns());
        let announce = |number| slot.set_event(number);
        self.event = match TaskClock::start(thread, period_ns, session.signal(), announce) {
            Ok(clock) => {
                SessionCounts::add(&session.counts.threads_with_events, 1);
                Event::Runs(clock)
            }
            Err(refused) => {
                if thread_exists(current_process_id(), thread) {
                    self.count_as_refused(session);
                }
                if refused == RefusedClock::Process {
                    session.set_may_use_events(false);
                }
                self.batch = None;
                Event::Refused
            }
        };
        (self.captured_at_ns, self.signals) = (cpu_ns, 0);
        self.has_event()
    }

    fn count_as_refused(&mut self, session: &Session) {
        let count = u64::from(!std::mem::replace(&mut self.is_counted, true));
        SessionCounts::add(&session.counts.refused_events, count);
    }

    /// Makes room for further captures. Returns false if the thread has run for long without one: its
    /// event is silent.
    pub(crate) fn make_room(&mut self, cpu_ns: u64, interval_ns: u64) -> bool {
        if let Some(batch) = &self.batch {
            batch.request_all();
        }
        if std::mem::take(&mut self.has_overflowed) {
            self.captured_at_ns = cpu_ns;
        }
        self.lacks_kernel() || !self.is_silent(cpu_ns, interval_ns)
    }

    /// Returns whether the thread has run for long without a signal of the event. It may have been in the
    /// kernel.
    pub(crate) fn is_silent(&self, cpu_ns: u64, interval_ns: u64) -> bool {
        let silent_ns = cpu_ns.saturating_sub(self.captured_at_ns);
        let has_fired = self.has_overflowed
            || (self.batch.as_ref()).is_some_and(|batch| batch.waiting() + batch.uncaptured() > 0);
        silent_ns > SILENT_PERIODS.saturating_mul(interval_ns) && !has_fired
    }

    /// Returns a random period, the interval on average.
    fn next_period_ns(&mut self, interval_ns: u64) -> u64 {
        interval_ns / 2 + random_below(&mut self.random, interval_ns.max(1))
    }

    /// Draws the next period of a thread that sleeps, and whose clock reads `cpu_ns`. What has passed of
    /// the old period is lost. So the thread has just been sampled then, unless that never happens, because
    /// its steps are as long as some periods.
    pub(crate) fn draw_period(&mut self, cpu_ns: u64, interval_ns: u64) {
        let passed_ns = cpu_ns.saturating_sub(self.captured_at_ns);
        let [soon, late] = CAPTURES_OF_PERIOD.map(|captures| self.signals >= captures);
        if !(self.has_event() && (late || soon && passed_ns <= interval_ns / 4)) {
            return;
        }
        let period_ns = self.next_period_ns(interval_ns);
        if let Event::Runs(clock) = &self.event {
            clock.set_period(period_ns);
        }
        self.signals = 0;
    }

    /// Gives back memory of a thread that has been idle for long, and if many threads have slots, these and
    /// the event, too.
    pub(crate) fn rest(&mut self) {
        match &self.batch {
            Some(_) if SlotBatch::are_many() && !self.has_captures() => self.release(),
            Some(batch) => batch.release_memory(),
            None => {}
        }
    }

    /// Writes the captures that have arrived, after a call of `begin` with the time of the first one.
    /// Returns the time of the last one. Captures without a slot count with the nearby captures.
    pub(crate) fn collect(
        &mut self,
        samples: &mut SampleRecorder,
        context: &mut TickContext<'_>,
        begin: impl FnOnce(TimeStamp, &mut SampleRecorder, &TickContext<'_>),
    ) -> Option<TimeStamp> {
        let batch = self.batch.as_ref()?;
        let (views, count) = batch.captures();
        let mut views = views.peekable();
        begin(views.peek()?.header().time, samples, context);
        let uncaptured = batch.take_uncaptured();
        self.has_overflowed |= uncaptured > 0;
        self.signals += count + uncaptured;
        let mut last = None;
        for (number, view) in (1..).zip(views) {
            let CaptureHeader { time, cpu_ns, .. } = *view.header();
            last = Some(time);
            self.captured_at_ns = self.captured_at_ns.max(cpu_ns);
            let weight = 1 + uncaptured * number / count - uncaptured * (number - 1) / count;
            write_capture(view, weight, samples, context);
        }
        last
    }
}

fn write_capture(
    mut view: CapturedView<'_>,
    weight: u64,
    samples: &mut SampleRecorder,
    context: &mut TickContext<'_>,
) {
    let header = *view.header();
    let counts = &context.session.counts;
    let lost = if view.enlarge_slot() {
        Some(&counts.repeated_captures)
    } else if !context.scratch.try_reserve(&view) {
        Some(&counts.dropped_samples)
    } else {
        None
    };
    if let Some(count) = lost {
        SessionCounts::add(count, 1);
        SessionCounts::add(&counts.unanswered_ticks, weight);
    } else {
        unwind_copy(context, &captured_by(&view));
        let Scratch {
            native,
            merged,
            stack,
        } = &mut context.scratch;
        stack.set(native, &view, context.session.records_scripts(), merged);
        drop(view);
        // The handler has read the clock at its end.
        let answered_ns = header.cpu_ns.saturating_sub(header.handler_ns);
        let answered_ns = (header.cpu_ns > 0).then_some(answered_ns);
        samples.write_running(header.time, weight, answered_ns, context);
    }
    SessionCounts::add(&counts.stopped_ns, header.handler_ns);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Returns the ticks, of so many, on which the thread is looked at, and the answers.
    fn looks(
        own: &mut OwnSamples,
        ticks: u32,
        count: impl Fn(u32) -> Option<u64>,
    ) -> Vec<(u32, Option<bool>)> {
        let (mut looks, begin_ns) = (Vec::new(), own.sleeps.last.map_or(0, |(_, cpu_ns)| cpu_ns));
        for tick in 0..ticks {
            if own.is_time_to_look() {
                let cpu_ns = begin_ns + u64::from(tick) * 400_000;
                looks.push((tick, own.look_at_sleeps(count(tick), cpu_ns, 1_000_000)));
            }
        }
        looks
    }

    #[test]
    fn thread_that_only_waits_for_a_processor_is_looked_at_ever_less() {
        let own = &mut OwnSamples::new(1);
        let no = Some(false);
        let expected = [
            (0, None),
            (1, no),
            (3, no),
            (7, no),
            (15, no),
            (31, no),
            (47, no),
        ];
        assert_eq!(looks(own, 60, |_| Some(5)), expected);
        // It has slept since then, after a long step.
        assert_eq!(looks(own, 60, |_| Some(6)), [(3, Some(true))]);
        assert_eq!(looks(own, 9, |_| Some(6)), [(8, no)]);
    }

    #[test]
    fn thread_that_sleeps_often_is_not_worth_an_event() {
        let (yes, no) = (Some(true), Some(false));
        let sleeps_a_tick = |number: u32| {
            let count = |tick| Some(u64::from(tick * number));
            looks(&mut OwnSamples::new(1), 80, count)
        };
        // Steps of 400, 100 and 40 µs. Eight sleeps are enough to tell.
        let expected = [(0, None), (1, None), (3, None), (7, None), (15, yes)];
        assert_eq!(sleeps_a_tick(1), expected);
        let expected = [
            (0, None),
            (1, None),
            (3, no),
            (19, no),
            (35, no),
            (51, no),
            (67, no),
        ];
        assert_eq!(sleeps_a_tick(4), expected);
        assert_eq!(sleeps_a_tick(10)[1], (1, no));
    }

    #[test]
    fn looks_are_at_most_a_second_apart() {
        let own = &mut OwnSamples::new(1);
        for (interval_ns, ticks) in [(1_000_000, 64), (100_000_000, 10), (10_000_000_000, 0)] {
            own.sleeps = SeenSleeps::default();
            own.look_at_sleeps(Some(0), 0, interval_ns);
            // One step of 2 ms.
            assert_eq!(
                own.look_at_sleeps(Some(1), 2_000_000, interval_ns),
                Some(true)
            );
            assert_eq!(own.sleeps.ticks_left, ticks);
        }
    }

    #[test]
    fn thread_counts_as_sleeping_where_the_system_does_not_tell() {
        assert_eq!(
            looks(&mut OwnSamples::new(1), 3, |_| None),
            [(0, Some(true))]
        );
    }
}
