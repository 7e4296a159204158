//! The time that the samples of threads cover.

use crate::model::Samples;

/// Returns the times of the first and the last of all samples; `None` without samples.
pub(super) fn sampled_range<'a>(all: impl Iterator<Item = &'a Samples>) -> Option<(i64, i64)> {
    let ranges = all.filter_map(|samples| {
        let last = samples.len().checked_sub(1)?;
        Some((samples.get(0).time_ns, samples.get(last).time_ns))
    });
    ranges.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
}
