//! Detects uneven ticks, so that the samples of an idle thread have the times of their ticks.
//!
//! A run of idle samples is one entry, which holds the times of the first and the last of them. The
//! others are taken as evenly spaced, but ticks are not: the sampler may be kept from them for
//! seconds. Rows would then appear within that time, in which no tick looked at the thread. The
//! thread may even have run by then: the few ticks until the sampler notices that would show it
//! asleep for a good part of the time. So the sampler writes an entry for the tick that makes
//! them uneven, and the reader divides the runs there. A gap straight after another one is noted a
//! tick late: two ticks have no spacing to compare it with.

use crate::sampler::encode::Tick;

/// Maximum difference between the time of a tick and that on an even schedule, in intervals. With
/// less, the threads would have many short runs on a busy machine, which misses ticks now and then.
/// If it misses ticks regularly, they are even.
const TOLERANCE_INTERVALS: u64 = 4;
/// Minimum of that difference, in ns. A short interval is no longer than the delays with which any
/// system wakes a thread.
const MIN_TOLERANCE_NS: u64 = 2_000_000;

/// Ticks that are evenly spaced so far: each is near the straight line from the first to the last.
#[derive(Debug)]
pub(crate) struct EvenTicks {
    interval_ns: u64,
    tolerance_ns: f64,
    first: Tick,
    /// Bounds of the spacing of a line that is near all ticks so far, in ns.
    min_spacing_ns: f64,
    max_spacing_ns: f64,
}

impl EvenTicks {
    pub(crate) fn new(first: Tick, interval_ns: u64) -> Self {
        let tolerance_ns = TOLERANCE_INTERVALS
            .saturating_mul(interval_ns)
            .max(MIN_TOLERANCE_NS);
        Self {
            interval_ns,
            tolerance_ns: tolerance_ns as f64,
            first,
            min_spacing_ns: 0.0,
            max_spacing_ns: f64::INFINITY,
        }
    }

    /// Adds the next tick. Returns false if the ticks would no longer be even. This tick is the
    /// first one then.
    pub(crate) fn add(&mut self, tick: Tick) -> bool {
        let number = (tick.number - self.first.number) as f64;
        let after_ns = tick.time.since_ns(self.first.time) as f64;
        let is_even = (self.min_spacing_ns..=self.max_spacing_ns).contains(&(after_ns / number));
        if is_even {
            let min_spacing_ns = (after_ns - self.tolerance_ns) / number;
            let max_spacing_ns = (after_ns + self.tolerance_ns) / number;
            self.min_spacing_ns = self.min_spacing_ns.max(min_spacing_ns);
            self.max_spacing_ns = self.max_spacing_ns.min(max_spacing_ns);
        } else {
            self.restart(tick);
        }
        is_even
    }

    /// Returns the number of the first one of these ticks.
    pub(crate) fn since(&self) -> u64 {
        self.first.number
    }

    /// Returns the last tick of the schedule before `tick`, which is the latest tick: either
    /// `before`, the last tick that was taken, or the last tick that was left out in between.
    /// Left-out ticks came on time if the sampler was kept from its ticks.
    pub(crate) fn last_before(&self, tick: Tick, before: Tick) -> Tick {
        let max_spacing_ns = match self.first == tick {
            true => self.interval_ns,
            false => u64::MAX,
        };
        before.last_before(tick, max_spacing_ns)
    }

    /// Begins again with this tick as the first one.
    pub(crate) fn restart(&mut self, first: Tick) {
        (self.first, self.min_spacing_ns, self.max_spacing_ns) = (first, 0.0, f64::INFINITY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::TimeStamp;

    const MS: u64 = 1_000_000;
    const NONE: [u64; 0] = [];

    /// Adds ticks at these times, in ms, and returns the times of the ticks that begin a series.
    fn first_ones(times_ms: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let tick = |(number, ms)| Tick {
            number,
            time: TimeStamp(ms * MS),
        };
        let mut even = EvenTicks::new(tick((0, 0)), MS);
        let uneven = |&(number, ms): &(u64, u64)| !even.add(tick((number, ms)));
        let numbered = (1..).zip(times_ms);
        numbered.filter(uneven).map(|(_, ms)| ms).collect()
    }

    #[test]
    fn ticks_are_uneven_after_a_gap() {
        assert_eq!(first_ones((1..1000).chain(1003..2000)), NONE);
        assert_eq!(first_ones((1..1000).chain(1500..2000)), [1500]);
        assert_eq!(first_ones([1, 2, 3, 1000, 1001, 1002]), [1000]);
        // A gap after a single tick is taken for the spacing until the next tick.
        assert_eq!(first_ones([1000, 1001, 1002]), [1001]);
    }

    #[test]
    fn regularly_missed_ticks_are_even() {
        assert_eq!(first_ones((1..1000).map(|number| number * 3)), NONE);
        assert_eq!(
            first_ones((1..1000).map(|number| number + number / 7)),
            NONE
        );
        let slower = (1..1000).chain((1..500).map(|number| 1000 + 4 * number));
        assert!(!first_ones(slower).is_empty());
    }

    #[test]
    fn even_ticks_are_near_their_even_spacing() {
        // The gaps have no pattern.
        let mut state = 1_u32;
        let mut time_ms = 0;
        let times: Vec<u64> = (0..10_000)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                time_ms += 1 + u64::from(state >> 24 > 240) * u64::from(state >> 16 & 15);
                time_ms
            })
            .collect();
        let first_ones = first_ones(times.iter().copied());
        assert!((20..1000).contains(&first_ones.len()), "{first_ones:?}");
        for part in times.chunk_by(|_, next| !first_ones.contains(next)).skip(1) {
            let gaps = (part.len() - 1).max(1) as f64;
            let spacing = (part[part.len() - 1] - part[0]) as f64 / gaps;
            for (number, &ms) in part.iter().enumerate() {
                let difference = (part[0] as f64 + spacing * number as f64 - ms as f64).abs();
                assert!(difference <= TOLERANCE_INTERVALS as f64 + 1e-6, "{part:?}");
            }
        }
    }
}
