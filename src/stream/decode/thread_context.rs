//! The decoded data of one thread: its samples, markers, event delays and contexts, and where it sleeps.

use std::collections::{BTreeSet, VecDeque};

use crate::buffer::{BlockIndex, EntryReader, EntryWriter};
use crate::model::UniqueStacks;
use crate::stream::decode::chunk_stacks::FrameKey;
use crate::stream::decode::contexts::ContextIntervals;
use crate::stream::decode::rows::SampleRows;
use crate::stream::decode::source::ProfileSource;
use crate::threads::OffThreadRef;

/// The buffer's contents for one thread.
#[derive(Debug)]
pub(crate) struct ThreadStreamingContext {
    pub(crate) thread: OffThreadRef,
    pub(crate) samples: SampleRows,
    /// Whether the idle rows are left out as far as possible: see
    /// `ProcessStreamingContext::thin_sleepers`.
    pub(super) is_thinned: bool,
    /// The markers by their latest time.
    pub(crate) markers: MarkerIndex,
    pub(crate) probes: EventProbes,
    /// When the thread's samples were in which context.
    pub(crate) contexts: ContextIntervals,
    /// The stack at which the thread slept, if it slept throughout the profile, at one place.
    pub(crate) asleep_at: Option<u32>,
}

impl ThreadStreamingContext {
    pub(super) fn new(thread: &OffThreadRef) -> Self {
        Self {
            thread: thread.clone(),
            samples: SampleRows::default(),
            is_thinned: false,
            markers: MarkerIndex::default(),
            probes: EventProbes::default(),
            contexts: ContextIntervals::default(),
            asleep_at: None,
        }
    }

    /// Returns a function that maps ascending times to event delays, as far as the thread's probes
    /// show them.
    pub(crate) fn probed_delays(&self, source: &ProfileSource) -> impl FnMut(u64) -> Option<u64> {
        let registration = self.thread.unlocked_const_reader_and_atomic_rw();
        let end = registration
            .unregistered_at()
            .map_or(source.taken_at, |time| time.min(source.taken_at));
        let interval_ns = source.session.settings.interval.as_nanos() as u64;
        self.probes
            .delays(max_probe_gap_ns(interval_ns), source.ns_since_start(end))
    }

    /// Returns what [`Self::asleep_at`] is to be. `stacks` has the stacks of all threads.
    pub(super) fn find_place_of_sleep(
        &self,
        source: &ProfileSource,
        stacks: &UniqueStacks<FrameKey>,
    ) -> Option<u32> {
        let registration = self.thread.unlocked_const_reader_and_atomic_rw();
        let info = registration.info();
        let begin_ns = (source.ns_since_start(source.session.started_at)).max(source.cut_ns());
        let was_there = source.ns_since_start(info.registered_at) <= begin_ns
            && registration.unregistered_at().is_none()
            && !info.is_main;
        let is_all = self.markers.len() == 0
            && self.probes.is_empty()
            && self.contexts.all.is_empty()
            && self.samples.slept();
        match was_there && is_all {
            true => sleeping_place(self.samples.stacks(), stacks),
            false => None,
        }
    }

    /// Returns whether the thread ended before the cut and has no sample or marker after it, so
    /// that it is left out of the profile.
    pub(super) fn ended_before_cut(&self, source: &ProfileSource) -> bool {
        let ended_at = self
            .thread
            .unlocked_const_reader_and_atomic_rw()
            .unregistered_at()
            .map(|time| source.ns_since_start(time));
        let ended = ended_at.is_some_and(|ended_ns| ended_ns < source.cut_ns());
        ended && self.samples.rows() == 0 && self.markers.len() == 0
    }
}

/// The positions of markers in the buffer. After [`Self::sort`], they are ordered by the latest
/// time of each marker.
#[derive(Debug, Default)]
pub(crate) struct MarkerIndex {
    /// For each marker, the differences of time and position from the previous marker.
    encoded: EntryWriter,
    last: (u64, u64),
    count: usize,
    is_unsorted: bool,
}

impl MarkerIndex {
    pub(crate) fn push(&mut self, last_ns: u64, block: BlockIndex) {
        let (before_ns, before) = self.last;
        let marker = (last_ns, block.get());
        self.is_unsorted |= marker < self.last;
        self.encoded
            .signed(last_ns.wrapping_sub(before_ns) as i64)
            .signed(block.get().wrapping_sub(before) as i64);
        self.last = marker;
        self.count += 1;
    }

    /// Sorts the markers. Most markers are already in order when they are pushed.
    pub(crate) fn sort(&mut self) {
        if !self.is_unsorted {
            return;
        }
        let mut markers: Vec<(u64, BlockIndex)> = self.markers().collect();
        markers.sort_unstable();
        *self = Self::default();
        markers
            .into_iter()
            .for_each(|(last_ns, block)| self.push(last_ns, block));
    }

    /// Returns how much memory the index takes if it doubles.
    pub(super) fn growth_bytes(&self) -> usize {
        2 * self.encoded.bytes().len()
    }

    /// Returns how much memory [`Self::sort`] takes: the decoded markers, and a new index that
    /// grows.
    pub(super) fn sorting_bytes(&self) -> usize {
        match self.is_unsorted {
            true => self.count * size_of::<(u64, BlockIndex)>() + 2 * self.growth_bytes(),
            false => 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = BlockIndex> {
        self.markers().map(|(_, block)| block)
    }

    fn markers(&self) -> impl Iterator<Item = (u64, BlockIndex)> {
        let mut encoded = EntryReader::new(self.encoded.bytes());
        let (mut last_ns, mut position) = (0u64, 0u64);
        std::iter::from_fn(move || {
            last_ns = last_ns.wrapping_add(encoded.signed()? as u64);
            position = position.wrapping_add(encoded.signed()? as u64);
            Some((last_ns, BlockIndex::new(position)?))
        })
    }
}

/// Usual time from an answer to the next probe, in ns. The session's interval applies if it is
/// longer. A delayed watcher sends the next probe later.
const PROBE_INTERVAL_NS: u64 = 16_000_000;

/// Returns the maximum time from an answer to the next probe, in ns. After a longer gap, the event
/// loop's state during the gap is unknown.
fn max_probe_gap_ns(interval_ns: u64) -> u64 {
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

/// Maximum size of the instruction that calls the kernel, in bytes.
const MAX_SYSTEM_CALL_BYTES: u64 = if cfg!(target_arch = "x86_64") { 2 } else { 4 };

/// Returns the stack of the place where a thread sleeps, if all its stacks show one place.
///
/// A signal that interrupts a system call may find the thread at the instruction that calls the
/// kernel, which is to run again. Read from outside, the thread is behind it. These are one place,
/// and the result is the latter. It does not depend on the order of the stacks.
fn sleeping_place(
    of_thread: impl Iterator<Item = u32>,
    stacks: &UniqueStacks<FrameKey>,
) -> Option<u32> {
    let all: BTreeSet<u32> = of_thread.collect();
    if all.len() < 2 {
        return all.first().copied();
    }
    let mut calls = Vec::new();
    for stack in all {
        let &(callers, frame) = stacks.stacks().get(stack as usize)?;
        let call = match stacks.frames().get(frame as usize)? {
            FrameKey::Native(address) => (address.address.get(), false),
            FrameKey::Waiting(address, _) => (address.address.get(), true),
            _ => return None,
        };
        calls.push((callers, call, stack));
    }
    calls.sort_unstable();
    let (&(callers, first, _), &(of_last, last, place)) = (calls.first()?, calls.last()?);
    let is_one = callers == of_last
        && last.0 - first.0 <= MAX_SYSTEM_CALL_BYTES
        // Same address, different wait reason: two different calls.
        && calls.windows(2).all(|pair| pair[0].1 != pair[1].1);
    is_one.then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::SampledAddress;
    use crate::types::{CodeAddress, Wait};

    #[test]
    fn sort_orders_markers_by_time_then_position() {
        let mut markers = MarkerIndex::default();
        let given = [
            (50, 100),
            (70, 140),
            (60, 9000),
            (70, 120),
            (u64::MAX, u64::MAX),
            (0, 1),
        ];
        for (last_ns, position) in given {
            markers.push(last_ns, BlockIndex::new(position).expect("not 0"));
        }
        let blocks =
            |markers: &MarkerIndex| markers.blocks().map(BlockIndex::get).collect::<Vec<_>>();
        assert_eq!(
            (blocks(&markers), markers.len()),
            (given.map(|(_, position)| position).to_vec(), 6)
        );
        markers.sort();
        assert_eq!(
            (blocks(&markers), markers.len()),
            (vec![1, 100, 9000, 120, 140, u64::MAX], 6)
        );
        markers.sort();
        assert_eq!(blocks(&markers)[0], 1);
    }

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

    #[test]
    fn interrupted_system_call_is_the_same_place() {
        let at = |address| SampledAddress {
            address: CodeAddress::new(address),
            is_return_address: false,
        };
        let mut stacks = UniqueStacks::default();
        let mut stack = |caller, innermost| {
            let caller = stacks.intern_frame(&FrameKey::Native(at(caller)));
            let callers = stacks.append_frame(None, caller);
            let innermost = stacks.intern_frame(&innermost);
            stacks.append_frame(Some(callers), innermost)
        };
        let before = stack(100, FrameKey::Native(at(0x7827)));
        let behind = stack(100, FrameKey::Native(at(0x7829)));
        let elsewhere = stack(100, FrameKey::Native(at(0x7839)));
        let by_others = stack(200, FrameKey::Native(at(0x7829)));
        let [in_io, in_poll] =
            [Wait::Io, Wait::Timer].map(|wait| stack(100, FrameKey::Waiting(at(0x7829), wait)));
        let of_all = |all: &[u32]| sleeping_place(all.iter().copied(), &stacks);
        let place = of_all(&[behind]).expect("a place");
        assert_eq!(of_all(&[before, behind, behind]), Some(place));
        assert_eq!(of_all(&[behind, before]), Some(place));
        assert_ne!(of_all(&[before]), Some(place));
        for other in [elsewhere, by_others] {
            assert!(of_all(&[other]).is_some());
            assert_eq!(of_all(&[behind, other]), None);
            assert_eq!(of_all(&[other, before]), None);
        }
        let place = of_all(&[in_io]).expect("a place");
        for all in [[before, behind, in_io], [in_io, behind, before]] {
            assert_eq!(of_all(&all), Some(place));
        }
        assert_eq!(of_all(&[in_io, in_poll]), None);
        assert_eq!(of_all(&[before, in_poll, in_io]), None);
        assert_eq!(of_all(&[]), None);
    }
}
