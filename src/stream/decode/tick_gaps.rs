//! The times of the repeats of a sample, which are evenly spaced between the gaps of the sampler's ticks.

use crate::buffer::{EntryReader, Repeats, TickGap};

/// Maximum number of parts between gaps from which the spacing of a run's ticks is found.
const MAX_PARTS_FOR_SPACING: usize = 64;

/// The gaps between the sampler's ticks, in order of time.
#[derive(Default, Debug)]
pub(crate) struct TickGaps(Vec<TickGap>);

impl TickGaps {
    /// Reads a gap from its entry. Ignores one that is not later than the others: chunks repeat the gaps
    /// of those before them. A damaged gap that lies too late hides the sound ones after it. Returns
    /// `None` if the entry is malformed.
    pub(crate) fn read(&mut self, entry: &mut EntryReader<'_>) -> Option<()> {
        let gap = TickGap::read(entry)?;
        let is_later = (self.0.last())
            .is_none_or(|known| known.tick < gap.tick && known.time_ns <= gap.before_ns);
        if gap.before_ns <= gap.time_ns && is_later {
            self.0.push(gap);
        }
        Some(())
    }

    /// Returns the gaps before or within the samples of `more` ticks after the tick `first`.
    fn within(&self, first: u64, more: u64) -> &[TickGap] {
        let last = first.saturating_add(more);
        let begin = self.0.partition_point(|gap| gap.tick < first);
        let count = self.0[begin..].partition_point(|gap| gap.tick <= last);
        &self.0[begin..begin + count]
    }
}

/// The times of a sample and of its repeats.
#[derive(Clone, Copy)]
pub(crate) struct RunTimes<'a> {
    first_ns: u64,
    repeats: Repeats,
    /// The gaps before the sample and within its repeats.
    gaps: &'a [TickGap],
    /// Number of the sample's tick, if there are gaps.
    first_tick: u64,
}

impl<'a> RunTimes<'a> {
    pub(crate) fn new(first_ns: u64, repeats: Repeats, gaps: &'a TickGaps) -> Self {
        let last_ns = first_ns.saturating_add(repeats.span_ns);
        // A sample without repeats has the time of its tick.
        let within: &[TickGap] = match repeats.first_tick {
            Some(first) if repeats.count > 0 => gaps.within(first, repeats.count),
            _ => &[],
        };
        // The sampler takes the first tick as an interval after the one before it, which is too late if
        // the gap between these two is shorter.
        let within = match within {
            [gap, later @ ..] if Some(gap.tick) == repeats.first_tick && gap.time_ns < first_ns => {
                later
            }
            _ => within,
        };
        // In a damaged buffer, they may lie elsewhere.
        let are_within = (within.first()).is_none_or(|gap| first_ns <= gap.time_ns)
            && within.last().is_none_or(|gap| gap.time_ns <= last_ns);
        Self {
            first_ns,
            repeats,
            gaps: if are_within { within } else { &[] },
            first_tick: repeats.first_tick.unwrap_or(0),
        }
    }

    /// Returns the number of repeats, without the sample itself.
    pub(crate) fn count(&self) -> u64 {
        self.repeats.count
    }

    /// Returns the time of the repeat with this number, or of the sample itself for 0.
    #[inline]
    pub(crate) fn of(&self, number: u64) -> u64 {
        match self.gaps {
            [] => {
                let Repeats { count, span_ns, .. } = self.repeats;
                between(self.first_ns, span_ns, number, count)
            }
            _ => self.of_uneven(number),
        }
    }

    /// Returns the number of the repeat that belongs to the tick after this gap.
    fn after_gap(&self, gap: &TickGap) -> u64 {
        gap.tick - self.first_tick
    }

    #[cold]
    fn of_uneven(&self, number: u64) -> u64 {
        let passed = (self.gaps).partition_point(|gap| self.after_gap(gap) <= number);
        let (begin, begin_ns) = match passed.checked_sub(1) {
            Some(index) => (self.after_gap(&self.gaps[index]), self.gaps[index].time_ns),
            None => (0, self.first_ns),
        };
        let (end, end_ns) = match self.gaps.get(passed) {
            Some(gap) => (self.after_gap(gap) - 1, gap.before_ns),
            None => {
                let Repeats { count, span_ns, .. } = self.repeats;
                (count, self.first_ns.saturating_add(span_ns))
            }
        };
        // If the first tick came late, the sampler wrote an earlier time for it.
        if number == 0 && end == 0 {
            return begin_ns.max(end_ns);
        }
        between(
            begin_ns,
            end_ns.saturating_sub(begin_ns),
            number - begin,
            end - begin,
        )
    }

    /// Returns the time between two ticks that no gap divides, in ns; 0 if it is not known. Looks at the
    /// first parts only, because this is called for each run, and a damaged buffer may be full of gaps.
    pub(crate) fn spacing_ns(&self) -> u64 {
        let after_gaps = || self.gaps.iter().map(|gap| self.after_gap(gap));
        let begins = [0].into_iter().chain(after_gaps());
        let begins = begins.take(MAX_PARTS_FOR_SPACING);
        let ends = after_gaps().chain([self.repeats.count.saturating_add(1)]);
        let spacings = begins.zip(ends).filter_map(|(begin, end)| {
            let next = begin + 1;
            (next < end).then(|| self.of(next) - self.of(begin))
        });
        spacings.min().unwrap_or(0)
    }

    /// Returns the number of the first repeat that is not earlier than `cut_ns`, or 0 for the sample
    /// itself. Returns `None` if all are earlier.
    pub(crate) fn first_from(&self, cut_ns: u64) -> Option<u64> {
        if self.of(self.repeats.count) < cut_ns {
            return None;
        }
        let (mut earlier, mut found) = (0, self.repeats.count);
        while earlier < found {
            let middle = earlier + (found - earlier) / 2;
            if self.of(middle) < cut_ns {
                earlier = middle + 1;
            } else {
                found = middle;
            }
        }
        Some(found)
    }
}

/// Returns the time of step `number` of `steps`, which reach from `begin_ns` to `span_ns` later.
fn between(begin_ns: u64, span_ns: u64, number: u64, steps: u64) -> u64 {
    let offset_ns = match span_ns.checked_mul(number) {
        _ if steps == 0 => 0,
        Some(product) => product / steps,
        None => (u128::from(span_ns) * u128::from(number) / u128::from(steps)) as u64,
    };
    begin_ns.saturating_add(offset_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::EntryWriter;

    fn gaps_of(all: &[[u64; 3]]) -> TickGaps {
        let mut gaps = TickGaps::default();
        for numbers in all {
            let mut entry = EntryWriter::default();
            numbers.iter().for_each(|&number| _ = entry.number(number));
            gaps.read(&mut EntryReader::new(entry.bytes()));
        }
        gaps
    }

    /// Returns the times of a sample and its repeats. `first_tick` is the number of the sample's tick.
    fn times(
        first_tick: u64,
        first_ns: u64,
        last_ns: u64,
        count: u64,
        gaps: &TickGaps,
    ) -> Vec<u64> {
        let repeats = Repeats {
            count,
            span_ns: last_ns - first_ns,
            first_tick: Some(first_tick),
        };
        let run = RunTimes::new(first_ns, repeats, gaps);
        let times: Vec<u64> = (0..=count).map(|number| run.of(number)).collect();
        assert!(times.is_sorted(), "{times:?}");
        assert!(times[0] >= first_ns && times[count as usize] <= last_ns);
        assert!(run.spacing_ns() <= repeats.span_ns);
        for cut_ns in first_ns.saturating_sub(1)..=last_ns + 1 {
            let expected = times.iter().position(|&time_ns| time_ns >= cut_ns);
            assert_eq!(run.first_from(cut_ns).map(|at| at as usize), expected);
        }
        times
    }

    #[test]
    fn repeats_are_evenly_spaced_between_gaps() {
        // Ticks 0 to 4 at 0 to 40, ticks 5 to 7 at 100 to 120, tick 8 at 500, and those from 9 on at 700.
        let gaps = gaps_of(&[[100, 40, 5], [500, 120, 8], [700, 500, 9]]);
        let all = [0, 10, 20, 30, 40, 100, 110, 120, 500, 700, 703, 706];
        for first in 0..all.len() {
            for last in first..all.len() {
                let count = (last - first) as u64;
                let found = times(first as u64, all[first], all[last], count, &gaps);
                assert_eq!(found, all[first..=last], "from {first} to {last}");
            }
        }
    }

    #[test]
    fn ticks_may_have_another_spacing_after_a_gap() {
        // 1 to 4 and 5 to 1103: the ticks are missed regularly on one side of the gap.
        for (before, after) in [(10, 1), (1, 10), (7, 300)] {
            let at = |tick: u64| match tick {
                0..=4 => tick * before,
                _ => 4 * before + 100 + (tick - 5) * after,
            };
            let gaps = gaps_of(&[[at(5), at(4), 5]]);
            for (first, last) in [(0, 900), (2, 7), (4, 5), (3, 6)] {
                let found = times(first, at(first), at(last), last - first, &gaps);
                assert_eq!(found, (first..=last).map(at).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn spacing_is_that_of_two_ticks_without_a_gap() {
        let gaps = gaps_of(&[[100, 40, 5], [500, 120, 8], [700, 500, 9]]);
        let spacing_ns = |first_tick, first_ns, count, last_ns: u64| {
            let repeats = Repeats {
                count,
                span_ns: last_ns - first_ns,
                first_tick: Some(first_tick),
            };
            RunTimes::new(first_ns, repeats, &gaps).spacing_ns()
        };
        assert_eq!(spacing_ns(3, 30, 3, 110), 10);
        assert_eq!(spacing_ns(4, 40, 2, 110), 10);
        assert_eq!(spacing_ns(4, 40, 1, 100), 0);
        assert_eq!(spacing_ns(7, 120, 2, 700), 0);
        assert_eq!(spacing_ns(7, 120, 3, 703), 3);
    }

    #[test]
    fn first_tick_has_its_real_time_where_a_gap_shows_it() {
        let gaps = gaps_of(&[[100, 40, 5], [500, 120, 8]]);
        // It was taken as an interval after the tick before the gap.
        assert_eq!(times(5, 50, 120, 2, &gaps), [100, 110, 120]);
        assert_eq!(times(5, 50, 510, 4, &gaps), [100, 110, 120, 500, 510]);
        assert_eq!(times(8, 130, 510, 1, &gaps), [500, 510]);
        // It is the only one before the gap.
        assert_eq!(times(4, 33, 110, 2, &gaps), [40, 100, 110]);
    }

    #[test]
    fn run_without_the_number_of_its_tick_is_even() {
        let gaps = gaps_of(&[[100, 40, 5]]);
        let repeats = Repeats {
            count: 2,
            span_ns: 120,
            first_tick: None,
        };
        let run = RunTimes::new(0, repeats, &gaps);
        assert_eq!([0, 1, 2].map(|number| run.of(number)), [0, 60, 120]);
    }

    #[test]
    fn gaps_may_be_repeated() {
        let all = [[100, 40, 5], [500, 120, 8], [700, 500, 9]];
        let ordered = gaps_of(&all);
        assert_eq!(ordered.0.len(), 3);
        let repeated = gaps_of(&[all[0], all[1], all[0], all[1], all[2], all[1], all[2]]);
        assert_eq!(ordered.0, repeated.0);
    }

    #[test]
    fn spacing_is_that_of_the_first_parts() {
        // A gap after each tick, except between the ticks `even` and `even + 1`.
        let spacing_ns = |even: u64| {
            let late = (1..200).filter(|&tick| tick != even + 1);
            let all: Vec<_> = late
                .map(|tick| [tick * 100, tick * 100 - 100, tick])
                .collect();
            let gaps = gaps_of(&all);
            assert_eq!(gaps.0.len(), all.len());
            let repeats = Repeats {
                count: 199,
                span_ns: 19_900,
                first_tick: Some(0),
            };
            RunTimes::new(0, repeats, &gaps).spacing_ns()
        };
        assert_eq!([0, 1, 63].map(spacing_ns), [100; 3]);
        assert_eq!([64, 150].map(spacing_ns), [0; 2]);
    }

    #[test]
    fn gap_before_a_first_tick_that_is_taken_as_too_late_is_left_out() {
        // Tick 12 came late, at 800.9 ms, and tick 13 on time, at 801. From there on, they are even.
        let gaps = gaps_of(&[[8010, 8009, 13], [61_880, 11_880, 401]]);
        let found = times(13, 8019, 62_880, 488, &gaps);
        assert!(
            found
                .iter()
                .all(|&time_ns| !(11_881..61_880).contains(&time_ns))
        );
        assert_eq!((found[0], found[387], found[388]), (8019, 11_880, 61_880));
    }

    #[test]
    fn gaps_that_do_not_fit_are_ignored() {
        // It ends before it begins.
        assert!(gaps_of(&[[40, 100, 5]]).0.is_empty());
        // The same tick as the one before, and a later tick before its end.
        let gaps = gaps_of(&[[100, 40, 5], [500, 120, 5], [500, 90, 8]]);
        assert_eq!(gaps.0.len(), 1);
        // An earlier tick after its beginning.
        let gaps = gaps_of(&[[100, 40, 5], [50, 30, 3]]);
        assert_eq!(gaps.0.len(), 1);
        // The ticks of the gaps are those of the run, but the times are not.
        let gaps = gaps_of(&[[100, 40, 5], [500, 120, 8]]);
        assert_eq!(times(4, 0, 300, 4, &gaps), [0, 75, 150, 225, 300]);
        assert_eq!(times(3, 200, 500, 3, &gaps), [200, 300, 400, 500]);
        for first_tick in [u64::MAX, u64::MAX - 1, 0] {
            assert_eq!(times(first_tick, 0, 30, 3, &gaps), [0, 10, 20, 30]);
        }
    }
}
