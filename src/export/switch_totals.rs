//! The context switches of a thread, from the markers that the feature `contextswitches` adds.

use std::time::Duration;

use crate::export::payloads::is_of_type;
use crate::model::{FieldValue, Marker, ProfileModel, Thread};

/// The markers have their times in ms.
const NS_PER_MS: f64 = 1e6;

/// Sums over the markers of one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct SwitchTotals {
    /// Time in which the thread waited for a processor, in ns; `None` if the kernel did not report
    /// it.
    pub(super) waited_ns: Option<u64>,
    pub(super) voluntary: u64,
    pub(super) involuntary: u64,
}

impl SwitchTotals {
    /// Returns the sums of a thread; `None` if it has no such marker.
    pub(super) fn of(profile: &ProfileModel, thread: &Thread) -> Option<Self> {
        let mut totals = None;
        for marker in thread
            .markers
            .iter()
            .filter(|marker| is_of_switches(profile, marker))
        {
            let totals: &mut Self = totals.get_or_insert_default();
            totals.add(profile, &marker);
        }
        totals
    }

    /// Returns what one marker says.
    pub(super) fn of_marker(profile: &ProfileModel, marker: &Marker<'_>) -> Self {
        let mut totals = Self::default();
        totals.add(profile, marker);
        totals
    }

    fn add(&mut self, profile: &ProfileModel, marker: &Marker<'_>) {
        let fields = marker.payload.map_or(&[][..], |payload| payload.fields);
        for (key, value) in fields {
            let value = match *value {
                FieldValue::Integer(number) => number as f64,
                FieldValue::Number(number) => number,
                _ => continue,
            };
            let (sum, factor) = match profile.text(*key) {
                "waited" => (self.waited_ns.get_or_insert_default(), NS_PER_MS),
                "voluntary" => (&mut self.voluntary, 1.0),
                "involuntary" => (&mut self.involuntary, 1.0),
                _ => continue,
            };
            // Negative numbers are 0.
            *sum = sum.saturating_add((value * factor).round() as u64);
        }
    }

    pub(super) fn waited(&self) -> Option<Duration> {
        self.waited_ns.map(Duration::from_nanos)
    }
}

/// Returns whether a marker is one of these.
pub(super) fn is_of_switches(profile: &ProfileModel, marker: &Marker<'_>) -> bool {
    is_of_type(profile, marker, "ContextSwitches")
}

/// Returns whether a marker is the interval in which samples had one context.
pub(super) fn is_of_contexts(profile: &ProfileModel, marker: &Marker<'_>) -> bool {
    is_of_type(profile, marker, "SampleContext")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::test_profile::TestProfile;

    #[test]
    fn totals_are_the_sums_over_all_markers_of_the_type() {
        let mut test = TestProfile::new(1_000_000);
        let thread = test.thread("main");
        test.interval(thread, "other", 0, 5);
        let totals = |test: &TestProfile| SwitchTotals::of(&test.profile, &test.profile.threads[0]);
        assert_eq!(totals(&test), None);
        test.switches(thread, (0, 100), None, [1, 2]);
        let without_waits = SwitchTotals {
            waited_ns: None,
            voluntary: 1,
            involuntary: 2,
        };
        assert_eq!(totals(&test), Some(without_waits));
        test.switches(thread, (100, 200), Some(30), [10, 20]);
        test.switches(thread, (200, 300), Some(5), [0, 0]);
        let all = SwitchTotals {
            waited_ns: Some(35),
            voluntary: 11,
            involuntary: 22,
        };
        assert_eq!(totals(&test), Some(all));
    }
}
