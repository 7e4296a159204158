//! Ranges of time.

/// A start and an end, in ns.
pub(super) type TimeRange = (i64, i64);

/// Returns how long two ranges overlap, in ns.
pub(super) fn overlap_ns(one: TimeRange, other: TimeRange) -> i64 {
    let (start_ns, end_ns) = (one.0.max(other.0), one.1.min(other.1));
    end_ns.saturating_sub(start_ns).max(0)
}

/// Sorts ranges, joins those that touch, and drops empty ones.
pub(super) fn merge(mut ranges: Vec<TimeRange>) -> Vec<TimeRange> {
    ranges.retain(|range| range.0 < range.1);
    ranges.sort_unstable();
    ranges.dedup_by(|range, last| {
        let touches = range.0 <= last.1;
        if touches {
            last.1 = last.1.max(range.1);
        }
        touches
    });
    ranges
}

/// Returns the parts of a range outside of other ranges, which [`merge`] has returned.
pub(super) fn outside(range: TimeRange, others: &[TimeRange]) -> Vec<TimeRange> {
    let mut parts = Vec::new();
    let mut done_ns = range.0;
    for (start_ns, end_ns) in others.iter().filter(|other| overlap_ns(**other, range) > 0) {
        parts.push((done_ns, *start_ns));
        done_ns = *end_ns;
    }
    parts.push((done_ns, range.1));
    parts.retain(|part| part.0 < part.1);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_outside_of_merged_ranges_are_the_rest() {
        let merged = merge(vec![(7, 9), (1, 3), (2, 5), (5, 6), (4, 4)]);
        assert_eq!(merged, [(1, 6), (7, 9)]);
        assert_eq!(outside((0, 10), &merged), [(0, 1), (6, 7), (9, 10)]);
        assert_eq!(outside((2, 8), &merged), [(6, 7)]);
        assert_eq!(outside((2, 6), &merged), []);
        assert_eq!(outside((9, 11), &merged), [(9, 11)]);
    }
}
