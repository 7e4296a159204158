//! The times of the repeats of a sample, which are evenly spaced between the gaps of the sampler's ticks.

use crate::buffer::EntryReader;
use crate::util::vec_growth_bytes;

/// The repeats of a sample: later samples with the same stack and event, in which the thread used
/// no CPU time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Repeats {
    /// Number of repeats, without the sample itself.
    pub(crate) count: u64,
    /// Time from the sample to its last repeat, in ns.
    pub(crate) span_ns: u64,
}

/// Two successive ticks of the sampler that lie apart. Times are in ns since the process began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TickGap {
    /// The time of the tick after the gap.
    pub(crate) time_ns: u64,
    /// The time of the tick before the gap.
    pub(crate) before_ns: u64,
    /// The number of the tick after the gap.
    pub(crate) tick: u64,
}

/// The gaps between the sampler's ticks, in order of time.
#[derive(Default, Debug)]
pub(crate) struct TickGaps(Vec<TickGap>);

impl TickGaps {
    /// Reads a gap from its entry, and ignores one that contradicts those before it. Returns `None` if
    /// the entry is malformed.
    pub(crate) fn read(&mut self, entry: &mut EntryReader<'_>) -> Option<()> {
        let gap = TickGap {
            time_ns: entry.number()?,
            before_ns: entry.number()?,
            tick: entry.number()?,
        };
        let is_in_order = (self.0.last())
            .is_none_or(|last| last.time_ns <= gap.before_ns && last.tick < gap.tick);
        // In a damaged buffer, gaps may lie anywhere.
        if gap.before_ns <= gap.time_ns && is_in_order {
            self.0.push(gap);
        }
        Some(())
    }

    /// Returns how much memory the gaps of `more` bytes of entries take if the table grows.
    pub(crate) fn growth_bytes(&self, more: usize) -> usize {
        // An entry has its length, its kind and three numbers, each of a byte at least.
        vec_growth_bytes(&self.0, more / 5)
    }

    /// Returns the gaps within a sample and its repeats.
    fn within(&self, first_ns: u64, last_ns: u64) -> &[TickGap] {
        let begin = self.0.partition_point(|gap| gap.time_ns <= first_ns);
        let count = self.0[begin..].partition_point(|gap| gap.time_ns <= last_ns);
        &self.0[begin..begin + count]
    }
}

/// The times of a sample and of its repeats.
#[derive(Clone, Copy)]
pub(crate) struct RunTimes<'a> {
    first_ns: u64,
    repeats: Repeats,
    /// The gaps within them.
    gaps: &'a [TickGap],
    /// Number of the repeat that belongs to the tick after the first gap; 0 for the sample itself.
    after_first_gap: u64,
}

impl<'a> RunTimes<'a> {
    pub(crate) fn new(first_ns: u64, repeats: Repeats, gaps: &'a TickGaps) -> Self {
        let last_ns = first_ns.saturating_add(repeats.span_ns);
        let even = Self {
            first_ns,
            repeats,
            gaps: &[],
            after_first_gap: 0,
        };
        // A sample without repeats has the time of its tick.
        let gaps = match repeats.count {
            0 => &[],
            _ => gaps.within(first_ns, last_ns),
        };
        let ([first_gap, ..], [.., last_gap]) = (gaps, gaps) else {
            return even;
        };
        // The samples between the first and the last gap are known by their ticks. The others lie
        // before the first and after the last gap, in proportion to the time there.
        let between = last_gap.tick - first_gap.tick;
        let Some(outer) = (repeats.count + 1).checked_sub(between).filter(|&n| n > 0) else {
            return even;
        };
        let before_ns = first_gap.before_ns.checked_sub(first_ns);
        let after_ns = last_ns - last_gap.time_ns;
        let after_first_gap = match (before_ns, outer) {
            // The time of the first tick was taken as an interval after that of the tick before it.
            (None, _) => 0,
            (Some(_), 1) => return even,
            (Some(before_ns), _) => {
                let [steps, part, whole] =
                    [outer - 2, before_ns, before_ns.saturating_add(after_ns)].map(u128::from);
                match whole {
                    0 => 1,
                    _ => ((2 * steps * part + whole) / (2 * whole)) as u64 + 1,
                }
            }
        };
        Self {
            gaps,
            after_first_gap,
            ..even
        }
    }

    /// Returns the time of the repeat with this number, or of the sample itself for 0.
    #[inline]
    pub(crate) fn of(&self, number: u64) -> u64 {
        match self.gaps {
            [] => {
                let Repeats { count, span_ns } = self.repeats;
                between(self.first_ns, span_ns, number, count)
            }
            _ => self.of_uneven(number),
        }
    }

    /// Returns the number of the repeat that belongs to the tick after this gap.
    fn after_gap(&self, gap: &TickGap) -> u64 {
        self.after_first_gap + (gap.tick - self.gaps[0].tick)
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
                let Repeats { count, span_ns } = self.repeats;
                (count, self.first_ns.saturating_add(span_ns))
            }
        };
        between(
            begin_ns,
            end_ns.saturating_sub(begin_ns),
            number - begin,
            end.saturating_sub(begin),
        )
    }

    /// Returns the time between two ticks that no gap divides, in ns; 0 if it is not known.
    pub(crate) fn spacing_ns(&self) -> u64 {
        let count = self.repeats.count;
        if self.gaps.len() as u64 >= count {
            return 0;
        }
        let first_ns = self.of(1) - self.of(0);
        let last_ns = self.of(count) - self.of(count - 1);
        // At most one of them has a gap, unless nearly every tick has.
        first_ns.min(last_ns)
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

    /// Returns the times of a sample and its repeats.
    fn times(first_ns: u64, last_ns: u64, count: u64, gaps: &TickGaps) -> Vec<u64> {
        let span_ns = last_ns - first_ns;
        let run = RunTimes::new(first_ns, Repeats { count, span_ns }, gaps);
        let times: Vec<u64> = (0..=count).map(|number| run.of(number)).collect();
        assert!(times.is_sorted(), "{times:?}");
        assert!(run.spacing_ns() <= span_ns);
        for cut_ns in first_ns.saturating_sub(1)..=last_ns + 1 {
            let expected = times.iter().position(|&time_ns| time_ns >= cut_ns);
            assert_eq!(run.first_from(cut_ns).map(|at| at as usize), expected);
        }
        times
    }

    #[test]
    fn repeats_are_evenly_spaced_between_gaps() {
        // Ticks 0 to 4 at 0 to 40, ticks 5 to 7 at 100 to 120, and ticks from 8 on at 500.
        let gaps = gaps_of(&[[100, 40, 5], [500, 120, 8]]);
        let all = [0, 10, 20, 30, 40, 100, 110, 120, 500, 510, 520, 530];
        for first in 0..all.len() {
            for last in first..all.len() {
                let count = (last - first) as u64;
                let found = times(all[first], all[last], count, &gaps);
                assert_eq!(found, all[first..=last], "from {first} to {last}");
            }
        }
    }

    #[test]
    fn first_repeat_within_a_gap_is_moved_to_its_end() {
        let gaps = gaps_of(&[[100, 40, 5], [500, 120, 8]]);
        assert_eq!(times(50, 120, 2, &gaps), [100, 110, 120]);
        assert_eq!(times(50, 510, 4, &gaps), [100, 110, 120, 500, 510]);
        assert_eq!(times(130, 510, 1, &gaps), [500, 510]);
    }

    #[test]
    fn gaps_that_do_not_fit_are_ignored() {
        // Of a later time than the one before, of an earlier tick, and before the last one.
        assert!(gaps_of(&[[40, 100, 5]]).0.is_empty());
        let gaps = gaps_of(&[[100, 40, 5], [500, 120, 5], [500, 90, 8]]);
        assert_eq!(gaps.0.len(), 1);
        // More ticks between the gaps than there are samples.
        let gaps = gaps_of(&[[100, 40, 5], [500, 120, 800]]);
        assert_eq!(times(0, 600, 3, &gaps), [0, 200, 400, 600]);
        // A single sample outside of the gaps.
        let gaps = gaps_of(&[[100, 40, 5], [500, 120, 8]]);
        assert_eq!(times(0, 600, 3, &gaps), [0, 200, 400, 600]);
    }
}
