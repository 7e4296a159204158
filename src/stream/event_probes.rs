//! What probes of a thread's event loop tell of its samples.

/// The probes of a thread: when each was posted and until when it is known to have waited, in nanoseconds since the process began.
#[derive(Debug, Default)]
pub(super) struct EventProbes(Vec<(u64, u64)>);

impl EventProbes {
    /// A probe that is there already waited for longer than was known then.
    pub(super) fn push(&mut self, posted_ns: u64, waited_ns: u64) {
        let until_ns = posted_ns.saturating_add(waited_ns);
        let place = self.0.partition_point(|&(other_ns, _)| other_ns < posted_ns);
        match self.0.get_mut(place) {
            Some((same_ns, known_ns)) if *same_ns == posted_ns => *known_ns = until_ns.max(*known_ns),
            _ => self.0.insert(place, (posted_ns, until_ns)),
        }
    }

    /// For times in their order, how long an event that came then had to wait at least, as far as probes had come: `None` before
    /// the first.
    pub(super) fn delays(&self) -> impl FnMut(u64) -> Option<u64> {
        let mut next = self.0.iter().copied().peekable();
        let mut waiting: Vec<(u64, u64)> = Vec::new();
        let mut is_watched = false;
        move |time_ns| {
            while let Some(probe) = next.next_if(|&(posted_ns, _)| posted_ns <= time_ns) {
                is_watched = true;
                waiting.push(probe);
            }
            waiting.retain(|&(_, until_ns)| until_ns >= time_ns);
            let longest = waiting.iter().map(|&(posted_ns, _)| time_ns - posted_ns).max();
            longest.or(is_watched.then_some(0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays_at(probes: &EventProbes, times: &[u64]) -> Vec<Option<u64>> {
        times.iter().copied().map(probes.delays()).collect()
    }

    #[test]
    fn a_delay_grows_until_the_answer() {
        let mut probes = EventProbes::default();
        assert_eq!(delays_at(&probes, &[0, 7]), [None, None]);
        probes.push(100, 50);
        probes.push(300, 4);
        let times = [99, 100, 130, 150, 151, 299, 302, 305];
        assert_eq!(
            delays_at(&probes, &times),
            [None, Some(0), Some(30), Some(50), Some(0), Some(0), Some(2), Some(0)]
        );
    }

    #[test]
    fn a_probe_that_was_out_is_told_of_again() {
        let mut probes = EventProbes::default();
        probes.push(100, 20);
        probes.push(100, 70);
        probes.push(100, 40);
        assert_eq!(delays_at(&probes, &[160, 171]), [Some(60), Some(0)]);
    }

    #[test]
    fn of_two_watches_the_older_probe_counts() {
        let mut probes = EventProbes::default();
        // The younger ends and is written first.
        probes.push(150, 10);
        probes.push(100, 100);
        probes.push(180, 40);
        assert_eq!(delays_at(&probes, &[155, 190, 205, 221]), [Some(55), Some(90), Some(25), Some(0)]);
    }
}
