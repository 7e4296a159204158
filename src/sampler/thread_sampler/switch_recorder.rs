//! Records the context switches of a thread as markers on its track, for the feature
//! `contextswitches`.
//!
//! The kernel counts a thread's switches, and its waits for a processor, when the thread gets or
//! leaves a processor. These numbers cannot change without the thread's CPU clock. So the files that
//! have them, which take some 20 µs to read, are read only for a thread that has run.
//! Each such thread is read once in 100 ms, and all threads together once in 2 ms, which costs 1 % of
//! a core. If more than 50 threads run, the threads that have waited longest are read first, and
//! their markers are longer: 400 ms if 200 threads run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::markers::built_in::ContextSwitches;
use crate::markers::{MarkerTiming, NewMarker, TypedPayload};
use crate::platform::{SwitchCounts, SwitchResult, ThreadProbe, monotonic_now};
use crate::sampler::main_thread_markers::put_marker;
use crate::sampler::tick_context::TickContext;
use crate::threads::OffThreadRef;
use crate::types::{ProfilerTime, ProfilingCategoryPair, ThreadProfilingFeatures, TimeStamp};

/// Minimum time between two readings of one thread, in ns.
const PERIOD_NS: u64 = 100_000_000;
/// Minimum time between two readings of any threads, in ns.
const READING_INTERVAL_NS: u64 = 2_000_000;
/// Maximum number of readings on one tick.
const MAX_READINGS: u64 = 16;
/// Maximum number of threads that are checked on one tick. Threads that have not run are not read.
const MAX_CHECKS: usize = MAX_READINGS as usize;
/// Time until a thread is read again whose switches the system has refused to report, in ns.
const HIDDEN_NS: u64 = 1_000_000_000;

/// Limits how many threads are read on a tick.
#[derive(Debug, Default)]
pub(crate) struct SwitchReadings {
    counted_to: TimeStamp,
}

impl SwitchReadings {
    /// Returns how many threads may be read on the tick at this time.
    pub(crate) fn allowed_at(&mut self, now: TimeStamp) -> u64 {
        let allowed = now.since_ns(self.counted_to) / READING_INTERVAL_NS;
        if allowed >= MAX_READINGS {
            self.counted_to = now;
            return MAX_READINGS;
        }
        self.counted_to = self.counted_to.plus_ns(allowed * READING_INTERVAL_NS);
        allowed
    }
}

/// The threads to check on a tick.
#[derive(Debug, Default)]
pub(crate) struct DueThreads {
    /// The time from which on each is due, and its place in the list of threads, in this order.
    found: [(TimeStamp, usize); MAX_CHECKS],
    count: usize,
}

impl DueThreads {
    /// Finds the threads that have been due for the longest time, so that each has its turn. The
    /// argument has for each thread since when it is due, if it is.
    pub(crate) fn find(threads: impl Iterator<Item = Option<TimeStamp>>) -> Self {
        let mut due = Self::default();
        for (place, since) in threads.enumerate() {
            if let Some(since) = since {
                due.add(since, place);
            }
        }
        due
    }

    fn add(&mut self, since: TimeStamp, place: usize) {
        let found = &self.found[..self.count];
        let at = found.partition_point(|(other, _)| *other <= since);
        if at == MAX_CHECKS {
            return;
        }
        self.count = (self.count + 1).min(MAX_CHECKS);
        self.found[at..self.count].rotate_right(1);
        self.found[at] = (since, place);
    }

    pub(crate) fn places(&self) -> impl Iterator<Item = usize> {
        self.found[..self.count].iter().map(|(_, place)| *place)
    }
}

/// What the kernel has counted of a thread at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SwitchReading {
    at: TimeStamp,
    cpu_ns: u64,
    counts: SwitchCounts,
}

/// Records the context switches of one thread.
#[derive(Debug, Default)]
pub(crate) struct SwitchRecorder {
    /// The last reading; `None` before the first one, and after a pause.
    before: Option<SwitchReading>,
    /// The thread is not read again before this time.
    next: TimeStamp,
    /// Until when the thread is known not to have run since the last reading.
    rested_until: TimeStamp,
    /// Whether the system refused to report the thread's switches at the last attempt.
    is_hidden: bool,
    /// Whether the thread counts as one without switches, and as one without waits.
    counts_as_hidden: bool,
    counts_as_without_waits: bool,
}

impl SwitchRecorder {
    /// Returns whether a thread whose CPU clock reads `cpu_ns` has not run since the last reading.
    pub(crate) fn has_read(&self, cpu_ns: u64) -> bool {
        self.before.is_some_and(|before| before.cpu_ns == cpu_ns)
    }

    /// Returns whether a thread whose CPU clock reads `cpu_ns` need not be read before it runs again:
    /// it has not run since the last reading, or the last attempt failed.
    pub(crate) fn may_rest(&self, cpu_ns: u64) -> bool {
        self.is_hidden || self.has_read(cpu_ns)
    }

    /// Returns since when the thread's CPU clock is to be checked; `None` if that is not due.
    pub(crate) fn due_since(&self, now: TimeStamp) -> Option<TimeStamp> {
        Some(self.next).filter(|next| now >= *next)
    }

    /// Returns whether a reading gives a marker.
    pub(crate) fn has_begun(&self) -> bool {
        self.before.is_some()
    }

    /// Checks the thread again after a period.
    fn postpone(&mut self, now: TimeStamp) {
        self.next = now.plus_ns(PERIOD_NS);
    }

    /// Notes that the CPU clock of the thread still read `cpu_ns` at this time. A rest of less than
    /// a period is a sleep like any other. A thread that was runnable at the last reading does not
    /// rest.
    pub(crate) fn rest(&mut self, cpu_ns: u64, until: TimeStamp) {
        let is_rest = |before: SwitchReading| {
            before.cpu_ns == cpu_ns
                && !before.counts.is_runnable
                && until.since_ns(before.at) >= PERIOD_NS
        };
        if self.before.is_some_and(is_rest) {
            self.rested_until = self.rested_until.max(until);
        }
    }

    /// Forgets the last reading, so that a pause is in no marker.
    pub(crate) fn forget(&mut self) {
        (self.before, self.next) = (None, TimeStamp(0));
    }

    /// Reads and records the switches of a thread that has run since the last reading. Its CPU clock
    /// reads `cpu_ns`; `None` if it cannot be read. Returns whether the thread's files were read.
    pub(crate) fn record(
        &mut self,
        thread: &OffThreadRef,
        probe: &mut ThreadProbe,
        cpu_ns: Option<u64>,
        context: &TickContext<'_>,
    ) -> bool {
        let session = context.session;
        // A pause may have begun during this tick.
        if session.pauses.until(&context.pauses).is_some() {
            return false;
        }
        let Some(cpu_ns) = cpu_ns.filter(|&cpu_ns| !self.has_read(cpu_ns)) else {
            self.postpone(context.tick.time);
            return false;
        };
        match probe.switches() {
            SwitchResult::Counted(mut counts) => {
                if cpu_ns == 0 {
                    // The kernel reports no wait before the thread has run.
                    counts.waited_ns = Some(0);
                }
                let reading = SwitchReading {
                    at: monotonic_now(),
                    cpu_ns,
                    counts,
                };
                self.is_hidden = false;
                if counts.waited_ns.is_none()
                    && !std::mem::replace(&mut self.counts_as_without_waits, true)
                    && is_first(&session.counts.threads_without_waits)
                {
                    session
                        .log
                        .add("the kernel does not report waits for a processor");
                }
                if let Some((interval, switches)) = self.take(reading) {
                    put_switches(thread, interval, &switches, context);
                }
            }
            SwitchResult::Missing => self.postpone(context.tick.time),
            SwitchResult::Hidden => {
                self.is_hidden = true;
                self.next = context.tick.time.plus_ns(HIDDEN_NS);
                if !std::mem::replace(&mut self.counts_as_hidden, true)
                    && is_first(&session.counts.threads_without_switches)
                {
                    session
                        .log
                        .add("the kernel hides the context switches of threads");
                }
            }
        }
        true
    }

    /// Takes a reading, and returns what the thread has done since the last one, from when to when.
    ///
    /// The interval begins at the end of a rest. The kernel counts a wait when it
    /// ends, so the interval begins earlier if it would be shorter than the wait. Of a thread that is
    /// not asleep now, some time may be a wait that has not ended: that time is left to the next
    /// interval.
    fn take(&mut self, now: SwitchReading) -> Option<([TimeStamp; 2], ContextSwitches)> {
        self.postpone(now.at);
        let rested_until = std::mem::take(&mut self.rested_until);
        let before = self.before.replace(now)?;
        let ran_ns = now.cpu_ns.saturating_sub(before.cpu_ns);
        let waits = now.counts.waited_ns.zip(before.counts.waited_ns);
        let waited_ns = waits.map(|(now, before)| now.saturating_sub(before));
        let used_ns = ran_ns.saturating_add(waited_ns.unwrap_or(0));
        let latest = TimeStamp(now.at.0.saturating_sub(used_ns));
        let start = rested_until.min(latest).max(before.at);
        let end = match now.counts.is_runnable && waited_ns.is_some() {
            true => now.at.min(start.plus_ns(used_ns)),
            false => now.at,
        };
        self.before = Some(SwitchReading { at: end, ..now });
        let rest_ns = end.since_ns(start).saturating_sub(used_ns);
        let switches = ContextSwitches {
            ran: Duration::from_nanos(ran_ns),
            waited: waited_ns.map(Duration::from_nanos),
            slept: waited_ns.map(|_| Duration::from_nanos(rest_ns)),
            voluntary: (now.counts.voluntary).saturating_sub(before.counts.voluntary),
            involuntary: (now.counts.involuntary).saturating_sub(before.counts.involuntary),
        };
        Some(([start, end], switches))
    }
}

/// Counts a thread, and returns whether it is the first one.
fn is_first(count: &AtomicU64) -> bool {
    count.fetch_add(1, Ordering::Relaxed) == 0
}

/// Writes a marker for what a thread has done from `start` to `end`.
fn put_switches(
    thread: &OffThreadRef,
    [start, end]: [TimeStamp; 2],
    switches: &ContextSwitches,
    context: &TickContext<'_>,
) {
    let session = context.session;
    let reader = thread.unlocked_const_reader_and_atomic_rw();
    if reader.begin_entry(ThreadProfilingFeatures::MARKERS) != Some(session.generation) {
        return;
    }
    let time = |at: TimeStamp| ProfilerTime::from_monotonic_ns(at.0);
    let marker = NewMarker {
        name: "Context switches",
        category: ProfilingCategoryPair::Other(None).indices().0,
        timing: &MarkerTiming::interval(time(start), time(end)),
        stack: 0,
    };
    let payload = TypedPayload::new(switches);
    put_marker(
        session,
        context.writer.lane,
        (thread.serial(), end),
        &marker,
        payload,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn reading(
        at_ms: u64,
        cpu_ms: u64,
        waited_ms: Option<u64>,
        switches: [u64; 2],
    ) -> SwitchReading {
        SwitchReading {
            at: TimeStamp(at_ms * MS),
            cpu_ns: cpu_ms * MS,
            counts: SwitchCounts {
                voluntary: switches[0],
                involuntary: switches[1],
                waited_ns: waited_ms.map(|ms| ms * MS),
                is_runnable: false,
            },
        }
    }

    /// Returns start, run time, wait and sleep in ms, and both counts of switches.
    fn taken(recorder: &mut SwitchRecorder, reading: SwitchReading) -> Option<[u64; 6]> {
        let ([start, _], switches) = recorder.take(reading)?;
        let ms = |time: Option<Duration>| time.map_or(u64::MAX, |time| time.as_millis() as u64);
        let [ran, waited, slept] = [Some(switches.ran), switches.waited, switches.slept].map(ms);
        let (voluntary, involuntary) = (switches.voluntary, switches.involuntary);
        Some([start.0 / MS, ran, waited, slept, voluntary, involuntary])
    }

    #[test]
    fn intervals_have_the_differences_of_two_readings() {
        let mut recorder = SwitchRecorder::default();
        assert!(recorder.due_since(TimeStamp(0)).is_some() && !recorder.has_read(5 * MS));
        assert_eq!(taken(&mut recorder, reading(10, 5, Some(3), [7, 1])), None);
        assert!(recorder.has_read(5 * MS));
        let due = [109, 110, 150].map(|ms| recorder.due_since(TimeStamp(ms * MS)));
        assert_eq!(
            due,
            [None, Some(110), Some(110)].map(|ms| ms.map(|ms| TimeStamp(ms * MS)))
        );
        let second = reading(110, 25, Some(33), [9, 5]);
        let expected = [10, 20, 30, 50, 2, 4];
        assert_eq!(taken(&mut recorder, second), Some(expected));
        recorder.forget();
        assert_eq!(taken(&mut recorder, second), None);
    }

    #[test]
    fn interval_begins_after_a_rest_and_contains_its_wait() {
        let mut recorder = SwitchRecorder::default();
        recorder.take(reading(0, 1, Some(0), [0, 0]));
        recorder.rest(MS, TimeStamp(900 * MS));
        recorder.rest(2 * MS, TimeStamp(950 * MS));
        assert_eq!(recorder.rested_until, TimeStamp(900 * MS));
        let woke = reading(1000, 21, Some(10), [1, 0]);
        assert_eq!(taken(&mut recorder, woke), Some([900, 20, 10, 70, 1, 0]));
        // The thread seemed to rest while it waited for a processor.
        recorder.rest(21 * MS, TimeStamp(1290 * MS));
        let waited = reading(1300, 31, Some(210), [1, 1]);
        assert_eq!(taken(&mut recorder, waited), Some([1090, 10, 200, 0, 0, 1]));
        // The kernel does not report waits.
        let unknown = reading(1400, 41, None, [2, 1]);
        let expected = [1300, 10, u64::MAX, u64::MAX, 1, 0];
        assert_eq!(taken(&mut recorder, unknown), Some(expected));
    }

    #[test]
    fn time_of_a_wait_that_has_not_ended_is_in_the_next_interval() {
        let mut recorder = SwitchRecorder::default();
        let mut taken = |at_ms, cpu_ms, waited_ms, is_runnable| {
            let mut reading = reading(at_ms, cpu_ms, Some(waited_ms), [0, 0]);
            reading.counts.is_runnable = is_runnable;
            let (interval, switches) = recorder.take(reading)?;
            let [start, end] = interval.map(|time| time.0 / MS);
            let (waited, slept) = (switches.waited?.as_millis(), switches.slept?.as_millis());
            Some([start, end, waited as u64, slept as u64])
        };
        assert_eq!(taken(0, 0, 0, true), None);
        assert_eq!(taken(100, 3, 10, true), Some([0, 13, 10, 0]));
        // The last 40 ms may be a wait.
        assert_eq!(taken(206, 6, 160, true), Some([13, 166, 150, 0]));
        recorder.rest(6 * MS, TimeStamp(299 * MS));
        assert_eq!(recorder.rested_until, TimeStamp(0), "it may have waited");
    }

    /// Records threads that all run all the time, tick by tick, as the sampler does: it begins each
    /// tick with another thread. Returns how often each thread was read.
    fn readings_of_busy_threads(count: u64, ms: u64) -> Vec<u64> {
        let mut threads: Vec<_> = (0..count)
            .map(|id| (id, SwitchRecorder::default()))
            .collect();
        let mut readings = vec![0; count as usize];
        let mut limit = SwitchReadings::default();
        for tick in 1..=ms {
            threads.rotate_left(1);
            let now = TimeStamp(tick * MS);
            let allowed = limit.allowed_at(now) as usize;
            let due = threads.iter().map(|(_, thread)| thread.due_since(now));
            for place in DueThreads::find(due).places().take(allowed) {
                let (id, thread) = &mut threads[place];
                thread.take(reading(tick, tick, Some(0), [0, 0]));
                readings[*id as usize] += 1;
            }
        }
        readings
    }

    #[test]
    fn threads_are_read_in_turns() {
        // One in 2 ms: 500 in a second.
        for (count, expected) in [(128, 3..=4), (127, 3..=4), (250, 2..=2), (1, 10..=10)] {
            let readings = readings_of_busy_threads(count, 1_000);
            let all_in_turn = readings.iter().all(|number| expected.contains(number));
            assert!(all_in_turn, "{count}: {readings:?}");
        }
    }

    #[test]
    fn those_that_were_due_first_are_checked_first() {
        let due = |times: &[Option<u64>]| -> Vec<usize> {
            let times = times.iter().map(|time| time.map(TimeStamp));
            DueThreads::find(times).places().collect()
        };
        assert!(due(&[]).is_empty());
        assert_eq!(
            due(&[Some(7), None, Some(3), Some(7), Some(5)]),
            [2, 4, 0, 3]
        );
        let falling: Vec<_> = (0..100).map(|place| Some(100 - place)).collect();
        assert_eq!(due(&falling), (84..100).rev().collect::<Vec<_>>());
    }

    #[test]
    fn readings_are_limited_in_time_and_number() {
        let mut readings = SwitchReadings::default();
        let mut allowed = |ms: u64| readings.allowed_at(TimeStamp(ms * MS));
        assert_eq!(allowed(1_000), MAX_READINGS);
        assert_eq!([allowed(1_001), allowed(1_002), allowed(1_003)], [0, 1, 0]);
        assert_eq!([allowed(1_007), allowed(1_008)], [2, 1]);
    }
}
