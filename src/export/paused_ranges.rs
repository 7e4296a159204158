//! The pauses of a process, which the model keeps as the text of Gecko's `pausedRanges`.

use serde_json::Value;

use crate::model::Process;

/// A time without samples, or without samples and markers. A time that lies outside of what was
/// recorded is unknown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PausedRange {
    pub(super) start_ns: Option<i64>,
    pub(super) end_ns: Option<i64>,
    pub(super) reason: String,
}

impl PausedRange {
    /// Returns the pauses of a process; none if the text is no list of ranges.
    pub(super) fn all_of(process: &Process) -> Vec<Self> {
        let ranges = process.paused_ranges.as_deref();
        let ranges = ranges.and_then(|ranges| serde_json::from_str::<Vec<Value>>(ranges).ok());
        let to_range = |range: Value| {
            let time_ns = |key: &str| Some((range[key].as_f64()? * 1e6).round() as i64);
            Self {
                start_ns: time_ns("startTime"),
                end_ns: time_ns("endTime"),
                reason: range["reason"].as_str().unwrap_or_default().to_owned(),
            }
        };
        ranges
            .unwrap_or_default()
            .into_iter()
            .map(to_range)
            .collect()
    }

    /// Returns how much of the pause lies between two times, in ns.
    pub(super) fn ns_within(&self, begin_ns: i64, end_ns: i64) -> u64 {
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
        let process = Process {
            paused_ranges: Some(
                r#"[{"startTime":1,"endTime":3.5,"reason":"paused"},{"startTime":9,"endTime":null}]"#
                    .to_owned(),
            ),
            ..Process::default()
        };
        let ranges = PausedRange::all_of(&process);
        assert_eq!(
            (ranges[0].reason.as_str(), ranges[1].reason.as_str()),
            ("paused", "")
        );
        let within = |begin_ms: i64, end_ms: i64| {
            let within = ranges
                .iter()
                .map(|range| range.ns_within(begin_ms * 1_000_000, end_ms * 1_000_000));
            within.sum::<u64>() / 100_000
        };
        assert_eq!(within(0, 5), 25);
        assert_eq!(within(2, 3), 10);
        assert_eq!(within(4, 8), 0);
        assert_eq!(within(0, 12), 55);
        assert_eq!(PausedRange::all_of(&Process::default()), []);
    }
}
