//! Computes event delays from the probes of a thread's event loop.

use std::collections::VecDeque;

/// Usual time from an answer to the next probe, in ns. The session's interval applies if it is
/// longer. A delayed watcher sends the next probe later.
const PROBE_INTERVAL_NS: u64 = 16_000_000;

/// Returns the maximum time from an answer to the next probe, in ns. After a longer gap, the event
/// loop's state during the gap is unknown.
pub(crate) fn max_probe_gap_ns(interval_ns: u64) -> u64 {
    // The watcher, or the application's event loop, may have waited for a processor.
    PROBE_INTERVAL_NS.max(interval_ns).saturating_mul(4)
}

/// The probes of a thread: when each was posted and when its wait ended, in ns since the process
/// began. Sorted by the time of posting after [`Self::sort`].
#[derive(Debug, Default)]
pub(crate) struct EventProbes(Vec<(u64, u64)>);

impl EventProbes {
    /// Adds a probe. A probe without a wait (`None`) is open until it is added again with its wait.
    pub(crate) fn push(&mut self, posted_ns: u64, waited_ns: Option<u64>) {
        let until_ns = waited_ns.map_or(u64::MAX, |waited_ns| posted_ns.saturating_add(waited_ns));
        self.0.push((posted_ns, until_ns));
    }

    /// Sorts the probes by the time of posting. Of a probe that was added several times, keeps the
    /// entry whose wait ends first: an open entry gives way to the one with the wait.
    pub(crate) fn sort(&mut self) {
        self.0.sort_unstable();
        self.0.dedup_by_key(|&mut (posted_ns, _)| posted_ns);
    }

    /// Returns how much memory the probes take if their number doubles.
    pub(super) fn growth_bytes(&self) -> usize {
        2 * size_of_val(self.0.as_slice())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a function that maps ascending times to event delays. The delay is the time for
    /// which the oldest open probe has waited; it is 0 while no probe is open. The result is `None`
    /// before the first probe. It is also `None` after an answer if more than the maximum gap
    /// passes until the next probe, or until `end_ns` if there is no further probe.
    pub(crate) fn delays(
        &self,
        max_probe_gap_ns: u64,
        end_ns: u64,
    ) -> impl FnMut(u64) -> Option<u64> {
        let mut next = self.0.iter().copied().peekable();
        // Open probes, oldest first. A probe that ends before an older one never determines the
        // delay and is not added, so each ends later than those before it.
        let mut waiting: VecDeque<(u64, u64)> = VecDeque::new();
        let mut last_answer_ns = None;
        move |time_ns| {
            while let Some(probe) = next.next_if(|&(posted_ns, _)| posted_ns <= time_ns) {
                last_answer_ns = last_answer_ns.max(Some(probe.1));
                if waiting
                    .back()
                    .is_none_or(|&(_, until_ns)| until_ns < probe.1)
                {
                    waiting.push_back(probe);
                }
            }
            while let Some(&(_, until_ns)) = waiting.front()
                && until_ns < time_ns
            {
                waiting.pop_front();
            }
            // In a damaged buffer, times may go back.
            let max_delay_ns = waiting
                .front()
                .map(|&(posted_ns, _)| time_ns.saturating_sub(posted_ns));
            max_delay_ns.or_else(|| {
                let next_probe_ns = next.peek().map_or(end_ns, |&(posted_ns, _)| posted_ns);
                (next_probe_ns.saturating_sub(last_answer_ns?) <= max_probe_gap_ns).then_some(0)
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_GAP_NS: u64 = 200;
    const END_NS: u64 = 400;

    fn delays_at(probes: &mut EventProbes, times: &[u64]) -> Vec<Option<u64>> {
        probes.sort();
        times
            .iter()
            .copied()
            .map(probes.delays(MAX_GAP_NS, END_NS))
            .collect()
    }

    #[test]
    fn delay_grows_until_the_answer() {
        let mut probes = EventProbes::default();
        assert_eq!(delays_at(&mut probes, &[0, 7]), [None, None]);
        probes.push(100, Some(50));
        probes.push(300, Some(4));
        let times = [99, 100, 130, 150, 151, 299, 302, 305];
        assert_eq!(
            delays_at(&mut probes, &times),
            [
                None,
                Some(0),
                Some(30),
                Some(50),
                Some(0),
                Some(0),
                Some(2),
                Some(0)
            ]
        );
    }

    #[test]
    fn delay_is_unknown_without_probes() {
        let mut probes = EventProbes::default();
        probes.push(100, Some(10));
        let at = |probes: &mut EventProbes| delays_at(probes, &[105, 111, 309, 311, 400]);
        assert_eq!(
            at(&mut probes),
            [Some(5), None, None, None, None],
            "the last probe"
        );
        probes.push(310, Some(0));
        assert_eq!(
            at(&mut probes),
            [Some(5), Some(0), Some(0), Some(0), Some(0)],
            "the next probe came within the maximum gap"
        );
        let mut probes = EventProbes::default();
        probes.push(100, Some(10));
        probes.push(311, Some(0));
        assert_eq!(
            at(&mut probes),
            [Some(5), None, None, Some(0), Some(0)],
            "the next probe came too late"
        );
        // A probe of another watch covers the gap.
        probes.push(90, Some(250));
        assert_eq!(
            at(&mut probes),
            [Some(15), Some(21), Some(219), Some(221), Some(0)]
        );
    }

    #[test]
    fn open_probe_is_updated_when_it_ends() {
        let mut probes = EventProbes::default();
        probes.push(100, None);
        probes.push(100, None);
        assert_eq!(
            delays_at(&mut probes, &[160, 171, END_NS]),
            [Some(60), Some(71), Some(300)],
            "the probe is open"
        );
        probes.push(100, Some(70));
        assert_eq!(delays_at(&mut probes, &[160, 171]), [Some(60), None]);
        probes.push(300, Some(0));
        assert_eq!(delays_at(&mut probes, &[160, 171]), [Some(60), Some(0)]);
    }

    #[test]
    fn oldest_open_probe_determines_the_delay() {
        let mut probes = EventProbes::default();
        // The younger probe ends first and is written first.
        probes.push(150, Some(10));
        probes.push(100, Some(100));
        probes.push(180, Some(40));
        assert_eq!(
            delays_at(&mut probes, &[155, 190, 205, 221]),
            [Some(55), Some(90), Some(25), Some(0)]
        );
    }

    /// With a step for each pair of probes, this test would take hours.
    #[test]
    fn probes_in_descending_order_are_read_in_linearithmic_time() {
        const PROBES: u64 = 2_000_000;
        let mut probes = EventProbes::default();
        // All are open until the end, as in a damaged buffer.
        (1..=PROBES)
            .rev()
            .for_each(|posted_ns| probes.push(posted_ns, None));
        probes.sort();
        let delays = (1..=PROBES).map(probes.delays(MAX_GAP_NS, END_NS));
        assert!(delays.eq((0..PROBES).map(Some)));
    }
}
