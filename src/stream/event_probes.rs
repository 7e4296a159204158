//! What probes of a thread's event loop tell of its samples.

/// The next probe follows an answer by this, or by the session's interval where that is longer, unless the watcher is held up.
const USUAL_PAUSE_NS: u64 = 16_000_000;

/// How long after an answer the next probe may come: later, it says nothing of the time between.
pub(super) fn longest_pause_ns(interval_ns: u64) -> u64 {
    // The watcher, or the host's loop that answers, may have waited for a processor.
    USUAL_PAUSE_NS.max(interval_ns).saturating_mul(4)
}

/// The probes of a thread: when each was posted and until when it waited, in nanoseconds since the process began.
#[derive(Debug, Default)]
pub(super) struct EventProbes(Vec<(u64, u64)>);

impl EventProbes {
    /// One that was out waits until it is told of again with an end.
    pub(super) fn push(&mut self, posted_ns: u64, waited_ns: Option<u64>) {
        let until_ns = waited_ns.map_or(u64::MAX, |waited_ns| posted_ns.saturating_add(waited_ns));
        let place = self
            .0
            .partition_point(|&(other_ns, _)| other_ns < posted_ns);
        match self.0.get_mut(place) {
            Some((same_ns, known_ns)) if *same_ns == posted_ns => {
                *known_ns = until_ns.min(*known_ns)
            }
            _ => self.0.insert(place, (posted_ns, until_ns)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// For times in their order, how long an event that came then had to wait at least, as far as probes had come. `None` where
    /// nobody asked: before the first, and from an answer on when the next probe, or the end of what is known, came later than
    /// after the longest pause.
    pub(super) fn delays(
        &self,
        longest_pause_ns: u64,
        end_ns: u64,
    ) -> impl FnMut(u64) -> Option<u64> {
        let mut next = self.0.iter().copied().peekable();
        let mut waiting: Vec<(u64, u64)> = Vec::new();
        let mut last_answer_ns = None;
        move |time_ns| {
            while let Some(probe) = next.next_if(|&(posted_ns, _)| posted_ns <= time_ns) {
                last_answer_ns = last_answer_ns.max(Some(probe.1));
                waiting.push(probe);
            }
            waiting.retain(|&(_, until_ns)| until_ns >= time_ns);
            // A damaged buffer has times that go back.
            let longest = waiting
                .iter()
                .map(|&(posted_ns, _)| time_ns.saturating_sub(posted_ns))
                .max();
            longest.or_else(|| {
                let asked_again_ns = next.peek().map_or(end_ns, |&(posted_ns, _)| posted_ns);
                (asked_again_ns.saturating_sub(last_answer_ns?) <= longest_pause_ns).then_some(0)
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST_PAUSE_NS: u64 = 200;
    const END_NS: u64 = 400;

    fn delays_at(probes: &EventProbes, times: &[u64]) -> Vec<Option<u64>> {
        times
            .iter()
            .copied()
            .map(probes.delays(LONGEST_PAUSE_NS, END_NS))
            .collect()
    }

    #[test]
    fn a_delay_grows_until_the_answer() {
        let mut probes = EventProbes::default();
        assert_eq!(delays_at(&probes, &[0, 7]), [None, None]);
        probes.push(100, Some(50));
        probes.push(300, Some(4));
        let times = [99, 100, 130, 150, 151, 299, 302, 305];
        assert_eq!(
            delays_at(&probes, &times),
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
    fn where_nobody_asks_nothing_is_known() {
        let mut probes = EventProbes::default();
        probes.push(100, Some(10));
        let at = |probes: &EventProbes| delays_at(probes, &[105, 111, 309, 311, 400]);
        assert_eq!(
            at(&probes),
            [Some(5), None, None, None, None],
            "it was the last"
        );
        probes.push(310, Some(0));
        assert_eq!(
            at(&probes),
            [Some(5), Some(0), Some(0), Some(0), Some(0)],
            "the next came just in time"
        );
        let mut probes = EventProbes::default();
        probes.push(100, Some(10));
        probes.push(311, Some(0));
        assert_eq!(
            at(&probes),
            [Some(5), None, None, Some(0), Some(0)],
            "the next came late"
        );
        // Another watch's probe waits through that gap.
        probes.push(90, Some(250));
        assert_eq!(
            at(&probes),
            [Some(15), Some(21), Some(219), Some(221), Some(0)]
        );
    }

    #[test]
    fn a_probe_that_was_out_is_told_of_again() {
        let mut probes = EventProbes::default();
        probes.push(100, None);
        probes.push(100, None);
        assert_eq!(
            delays_at(&probes, &[160, 171, END_NS]),
            [Some(60), Some(71), Some(300)],
            "it is out"
        );
        probes.push(100, Some(70));
        assert_eq!(delays_at(&probes, &[160, 171]), [Some(60), None]);
        probes.push(300, Some(0));
        assert_eq!(delays_at(&probes, &[160, 171]), [Some(60), Some(0)]);
    }

    #[test]
    fn of_two_watches_the_older_probe_counts() {
        let mut probes = EventProbes::default();
        // The younger ends and is written first.
        probes.push(150, Some(10));
        probes.push(100, Some(100));
        probes.push(180, Some(40));
        assert_eq!(
            delays_at(&probes, &[155, 190, 205, 221]),
            [Some(55), Some(90), Some(25), Some(0)]
        );
    }
}
