//! The pauses of a process.

use std::borrow::Cow;

/// A time without samples, or without samples and markers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PausedRange {
    /// `None` if it lies outside of what was recorded.
    pub(crate) start_ns: Option<i64>,
    /// `None` if it lies outside of what was recorded, or while the pause lasts.
    pub(crate) end_ns: Option<i64>,
    pub(crate) reason: Cow<'static, str>,
}

impl PausedRange {
    /// Returns how much of the pause lies between two times, in ns.
    pub(crate) fn ns_within(&self, begin_ns: i64, end_ns: i64) -> u64 {
        let from = self.start_ns.unwrap_or(begin_ns).max(begin_ns);
        let to = self.end_ns.unwrap_or(end_ns).min(end_ns);
        to.saturating_sub(from).max(0).unsigned_abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_of_a_pause_within_two_times_is_counted() {
        let pause = |start_ns, end_ns| PausedRange {
            start_ns,
            end_ns,
            reason: "paused".into(),
        };
        let pauses = [
            pause(Some(1_000_000), Some(3_500_000)),
            pause(Some(9_000_000), None),
        ];
        let within = |begin_ms: i64, end_ms: i64| {
            let within = pauses
                .iter()
                .map(|pause| pause.ns_within(begin_ms * 1_000_000, end_ms * 1_000_000));
            within.sum::<u64>() / 100_000
        };
        assert_eq!(within(0, 5), 25);
        assert_eq!(within(2, 3), 10);
        assert_eq!(within(4, 8), 0);
        assert_eq!(within(0, 12), 55);
    }
}
