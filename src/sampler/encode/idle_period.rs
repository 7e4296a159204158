//! The samples of an idle thread, which repeat: one entry holds a whole run of them.

use std::ops::RangeInclusive;

use crate::types::TimeStamp;

/// Ticks before a thread counts as long idle. Until then it is likely to run soon, so it is checked
/// on every tick.
const SHORT_IDLE_TICKS: u64 = 32;
/// Ticks between two checks of a thread that has announced its sleep. The thread may have exited,
/// or have run after all.
const ANNOUNCED_CHECK_TICKS: u64 = 1024;
/// Divisor of an idle period's length: its unwritten part is overdue when it is longer than the
/// quotient. A long period thus takes few entries, and a crash loses only a small part of it.
const OVERDUE_DIVISOR: u64 = 4;
/// Bounds of the time after which an unwritten part is overdue, in ns.
const OVERDUE_NS: RangeInclusive<u64> = 1_000_000_000..=64_000_000_000;

/// A tick: its number since the session began, and its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tick {
    pub(crate) number: u64,
    pub(crate) time: TimeStamp,
}

impl Tick {
    /// Returns the last tick of the schedule before the tick `next`: this one, or the last of those
    /// that were left out after it. Takes the ticks in between as evenly spaced, by at most
    /// `max_spacing_ns`.
    pub(crate) fn last_before(self, next: Self, max_spacing_ns: u64) -> Self {
        let number = next.number.saturating_sub(1).max(self.number);
        let left_out = number - self.number;
        let spacing_ns = next.time.since_ns(self.time) / (left_out + 1);
        let spacing_ns = spacing_ns.min(max_spacing_ns);
        Self {
            number,
            time: self.time.plus_ns(spacing_ns * left_out),
        }
    }
}

/// Consecutive ticks on which a thread has the same stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SampleRun {
    pub(crate) first: TimeStamp,
    pub(crate) last: TimeStamp,
    pub(crate) ticks: u64,
    /// Number of the first tick, if the others are those after it.
    pub(crate) first_tick: Option<u64>,
}

impl SampleRun {
    /// Returns the number of its first tick if a gap may lie before or within it. Ticks are even from
    /// the tick `even_since` on, the one after the latest gap.
    pub(crate) fn uneven_tick(&self, even_since: u64) -> Option<u64> {
        self.first_tick.filter(|&tick| tick <= even_since)
    }

    /// Returns a run of one sample.
    pub(crate) fn single(time: TimeStamp) -> Self {
        Self {
            first: time,
            last: time,
            ticks: 1,
            first_tick: None,
        }
    }

    /// Returns the ticks of the run before `end`, taking them as evenly spaced.
    pub(crate) fn before(self, end: TimeStamp) -> Option<Self> {
        if self.last < end {
            return Some(self);
        }
        let available_ns = end.0.checked_sub(self.first.0)?.checked_sub(1)?;
        let (span_ns, gaps) = (self.last.since_ns(self.first), self.ticks - 1);
        if gaps == 0 || span_ns == 0 {
            return None;
        }
        let kept = (u128::from(available_ns) * u128::from(gaps) / u128::from(span_ns)) as u64;
        let last = (u128::from(span_ns) * u128::from(kept) / u128::from(gaps)) as u64;
        Some(Self {
            last: self.first.plus_ns(last),
            ticks: kept + 1,
            ..self
        })
    }
}

/// The period since a thread last ran. Its samples are not written on each tick, but as runs, for
/// example when it ends, when they are overdue, or when a profile is requested.
#[derive(Debug)]
pub(crate) struct IdlePeriod {
    /// Value of the thread's CPU clock throughout the idle period.
    pub(crate) cpu_ns: u64,
    /// Number of the announced sleep that the thread is in, if it announced one.
    announced: Option<u32>,
    /// Number of the last tick at which the thread was checked although it had announced the sleep.
    checked: u64,
    since: Tick,
    /// Number of the first tick that is not written yet.
    unwritten: u64,
    /// The tick with the number `unwritten` if it has come, otherwise the tick before it.
    known: Tick,
}

impl IdlePeriod {
    /// Starts an idle period on a tick that already has its sample.
    pub(crate) fn new(cpu_ns: u64, announced: Option<u32>, tick: Tick) -> Self {
        Self {
            cpu_ns,
            announced,
            checked: tick.number,
            since: tick,
            unwritten: tick.number + 1,
            known: tick,
        }
    }

    pub(crate) fn is_long(&self, tick: Tick) -> bool {
        tick.number - self.since.number >= SHORT_IDLE_TICKS
    }

    /// Returns whether the thread is still in the sleep that it announced, so that its clock need
    /// not be read. Once every [`ANNOUNCED_CHECK_TICKS`] ticks, returns false, so that it is read.
    pub(crate) fn is_announced(&mut self, announced: Option<u32>, tick: Tick) -> bool {
        if self.announced.is_none() || self.announced != announced {
            return false;
        }
        let is_check_due = tick.number - self.checked >= ANNOUNCED_CHECK_TICKS;
        if is_check_due {
            self.checked = tick.number;
        }
        !is_check_due
    }

    /// Drops the unwritten ticks before this one.
    pub(crate) fn skip_to(&mut self, tick: Tick) {
        (self.unwritten, self.known) = (tick.number, tick);
    }

    /// Returns whether the unwritten part is overdue. In a session with a crash file, a part is always
    /// short.
    pub(crate) fn is_overdue(&self, now: TimeStamp, has_crash_file: bool) -> bool {
        let (shortest, longest) = OVERDUE_NS.into_inner();
        let part_ns = match has_crash_file {
            true => shortest,
            false => now.since_ns(self.since.time) / OVERDUE_DIVISOR,
        };
        now.since_ns(self.known.time) > part_ns.clamp(shortest, longest)
    }

    /// Takes the unwritten ticks up to `last`. Ticks are even from the tick `even_since` on. If the time
    /// of the first one is not known, it follows from the spacing; among uneven ticks, it is at most an
    /// interval after the tick before it. The reader knows better where the first ticks came late: see
    /// [`EntryKind::TickGap`](crate::buffer::EntryKind::TickGap).
    pub(crate) fn take_run(
        &mut self,
        last: Tick,
        interval_ns: u64,
        even_since: u64,
    ) -> Option<SampleRun> {
        let ticks = (last.number + 1)
            .checked_sub(self.unwritten)
            .filter(|&ticks| ticks > 0)?;
        let gaps = (last.number - self.known.number).max(1);
        let mut spacing_ns = last.time.since_ns(self.known.time) / gaps;
        if even_since > self.known.number {
            spacing_ns = spacing_ns.min(interval_ns);
        }
        let ticks_before = self.unwritten - self.known.number;
        let first = match ticks {
            1 => last.time,
            _ => self.known.time.plus_ns(spacing_ns * ticks_before),
        };
        let first_tick = Some(self.unwritten);
        (self.unwritten, self.known) = (last.number + 1, last);
        Some(SampleRun {
            first,
            last: last.time,
            ticks,
            first_tick,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL_NS: u64 = 1000;

    fn tick(number: u64) -> Tick {
        Tick {
            number,
            time: TimeStamp(number * INTERVAL_NS),
        }
    }

    #[test]
    fn take_run_returns_unwritten_ticks() {
        let mut idle = IdlePeriod::new(5, None, tick(10));
        assert_eq!(idle.take_run(tick(10), INTERVAL_NS, 0), None);
        let run = |first, last| SampleRun {
            first: tick(first).time,
            last: tick(last).time,
            ticks: last - first + 1,
            first_tick: Some(first),
        };
        assert_eq!(idle.take_run(tick(11), INTERVAL_NS, 0), Some(run(11, 11)));
        assert_eq!(idle.take_run(tick(500), INTERVAL_NS, 0), Some(run(12, 500)));
        assert_eq!(idle.take_run(tick(500), INTERVAL_NS, 0), None);
        // A tick that came a little early, and ticks that came late.
        let at = |number, time| Tick {
            number,
            time: TimeStamp(time),
        };
        for (last, first, ticks) in [
            (at(501, 500_900), 500_900, 1),
            (at(502, 900_000), 900_000, 1),
            (at(505, 990_000), 901_000, 3),
        ] {
            let run = idle.take_run(last, INTERVAL_NS, 505).expect("ticks");
            assert_eq!(
                (run.first, run.last, run.ticks),
                (TimeStamp(first), last.time, ticks)
            );
        }
    }

    #[test]
    fn run_has_the_number_of_its_tick_if_a_gap_is_before_or_within_it() {
        let mut idle = IdlePeriod::new(5, None, tick(10));
        // Tick 11 came late. The time of the first sample is that of an even tick, so the reader needs
        // the gap before it.
        let late = |number| Tick {
            number,
            time: TimeStamp(number * INTERVAL_NS + 90_000),
        };
        let run = idle.take_run(late(20), INTERVAL_NS, 11).expect("ticks");
        assert_eq!(run.first, tick(11).time);
        assert_eq!([11, 20].map(|since| run.uneven_tick(since)), [Some(11); 2]);
        assert_eq!([0, 10].map(|since| run.uneven_tick(since)), [None; 2]);
    }

    #[test]
    fn before_cuts_the_run() {
        let run = SampleRun {
            first: TimeStamp(1000),
            last: TimeStamp(4000),
            ticks: 4,
            first_tick: None,
        };
        let cut = |end| {
            run.before(TimeStamp(end))
                .map(|run| (run.first.0, run.last.0, run.ticks))
        };
        assert_eq!(cut(4001), Some((1000, 4000, 4)));
        assert_eq!(cut(4000), Some((1000, 3000, 3)));
        assert_eq!(cut(2001), Some((1000, 2000, 2)));
        assert_eq!(cut(2000), Some((1000, 1000, 1)));
        assert_eq!(cut(1001), Some((1000, 1000, 1)));
        assert_eq!(cut(1000), None);
        assert_eq!(cut(7), None);
        let at_once = SampleRun {
            first: TimeStamp(5),
            last: TimeStamp(5),
            ticks: 3,
            first_tick: None,
        };
        assert_eq!(
            (at_once.before(TimeStamp(5)), at_once.before(TimeStamp(6))),
            (None, Some(at_once))
        );
    }

    #[test]
    fn skip_to_drops_earlier_ticks() {
        let mut idle = IdlePeriod::new(5, None, tick(10));
        idle.skip_to(tick(20));
        assert_eq!(idle.take_run(tick(19), INTERVAL_NS, 0), None);
        idle.skip_to(tick(20));
        let run = idle.take_run(tick(21), INTERVAL_NS, 0).expect("two ticks");
        assert_eq!(
            (run.first, run.last, run.ticks),
            (tick(20).time, tick(21).time, 2)
        );
    }

    #[test]
    fn announced_sleep_is_left_alone_until_its_end() {
        let mut idle = IdlePeriod::new(5, Some(7), tick(0));
        let mut announced = |announced, number| idle.is_announced(announced, tick(number));
        assert!(announced(Some(7), 1) && !announced(None, 1) && !announced(Some(9), 1));
        assert_eq!(
            (0..=4096)
                .filter(|&number| !announced(Some(7), number))
                .count(),
            4
        );
        assert!(!idle.is_long(tick(31)) && idle.is_long(tick(32)));
        assert!(!IdlePeriod::new(5, None, tick(0)).is_announced(None, tick(1)));
    }
}
