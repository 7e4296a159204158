//! One limit for the memory of this process and its children.
//!
//! Each process discards its own oldest chunks when it reaches the limit alone. While all of them
//! together exceed it, this process destroys the oldest released chunk of all. Idea:
//! Gecko's `ProfileBufferGlobalController`.
//!
//! A process that is a child, too, reports the chunks of its own children with its own: its hub
//! leaves the newest report here, and the thread that talks to the parent takes it.

use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::time::{Duration, Instant};

use crate::buffer::{Update, UpdateReader};
use crate::family::reports::ChunkReport;
use crate::state::core_buffer;
use crate::types::TimeStamp;
use crate::util::{PsCell, PsLock};

/// Time between two comparisons of the memory of all processes with the limit, and while it is far
/// below the limit.
const BALANCE: Duration = Duration::from_millis(50);
const CALM_BALANCE: Duration = Duration::from_millis(500);

/// The memory of this process and its children, as the hub keeps it within the limit.
#[derive(Debug, Default)]
pub(super) struct FamilyMemory {
    ledger: MemoryLedger,
    /// When to compare it with the limit, if a child runs.
    pub(super) balances_at: Option<Instant>,
    /// Whether the ledger has changed since the last comparison.
    has_changed: bool,
    /// Whether this process reports the chunks of its children to its own parent.
    reports: bool,
}

impl FamilyMemory {
    /// Forgets all processes, because a session begins or has ended. This process reports its own
    /// chunks alone again.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
        leave_report(None);
    }

    /// Lets the comparisons begin or end.
    pub(super) fn plan(&mut self, has_session: bool, has_running_children: bool, now: Instant) {
        // The parent of this process knows only what this process reports.
        match has_session && (has_running_children || self.reports) {
            true => _ = self.balances_at.get_or_insert(now),
            false => self.balances_at = None,
        }
    }

    /// If it is time, compares the memory of all processes with the limit. Returns until when the
    /// chunks of children are to be destroyed, and destroys those of this process.
    pub(super) fn balance(&mut self, max_bytes: u64, now: Instant) -> Vec<(u64, TimeStamp)> {
        if self.balances_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        let (update, kept_bytes) = core_buffer().read_update(UpdateReader::Family);
        match update {
            Update::None => {}
            Update::Final => self.ledger.remove(OWN),
            update => {
                let mut report = ChunkReport::of(update);
                report.unreleased_bytes += kept_bytes;
                self.note(OWN, &report);
            }
        }
        let has_changed = std::mem::take(&mut self.has_changed);
        // Once it does, the parent gets the chunks of all these processes from here.
        let begins = !self.reports && FOR_PARENT.get(&PsLock::acquire()).is_wanted;
        self.reports |= begins;
        let reports = begins || self.reports && has_changed;
        let pause = match self.ledger.bytes() < max_bytes / 2 && !reports {
            true => CALM_BALANCE,
            false => BALANCE,
        };
        self.balances_at = Some(now + pause);
        let mut excess = self.ledger.take_excess(max_bytes);
        let own = excess.extract_if(.., |(process, _)| *process == OWN);
        own.for_each(|(_, time)| core_buffer().destroy_chunks_at_or_before(time));
        if reports {
            leave_report(Some(self.ledger.whole()));
        }
        excess
    }

    /// Notes a report of a process.
    pub(super) fn note(&mut self, process: u64, report: &ChunkReport) {
        self.ledger.note(process, report);
        self.has_changed = true;
    }

    /// Forgets a child that has ended.
    pub(super) fn remove(&mut self, child: u64) {
        self.ledger.remove(child);
        self.has_changed = true;
    }

    /// Forgets the chunks that were complete at this time.
    pub(super) fn destroy(&mut self, until: TimeStamp) {
        self.ledger.destroy(until);
        self.has_changed = true;
    }

    /// Returns whether a child may have chunks of these sizes in a session of this capacity.
    pub(super) fn is_plausible(&self, chunks: &ChunkReport, capacity_bytes: u64) -> bool {
        /// Memory that the chunks of a process and of its children may take in addition to the
        /// capacity: each writer reserves two.
        const SPARE_BYTES: u64 = 64 << 30;
        /// Maximum number of released chunks of all processes.
        const MAX_CHUNKS: usize = 1 << 20;
        let max_bytes = capacity_bytes.saturating_add(SPARE_BYTES);
        let newly = chunks.newly_released.iter().map(|(_, bytes)| *bytes);
        chunks.unreleased_bytes <= max_bytes
            && newly.fold(0, u64::saturating_add) <= max_bytes
            && self.ledger.released.len() + chunks.newly_released.len() <= MAX_CHUNKS
    }
}

/// What the hub and the thread that talks to the parent tell each other.
#[derive(Debug, Default)]
struct ForParent {
    /// Whether the parent asks for the chunks.
    is_wanted: bool,
    /// Whether the hub reports for this process, because it has had children in this session.
    is_by_hub: bool,
    newest: Option<ChunkReport>,
}

static FOR_PARENT: PsCell<ForParent> = PsCell::new(ForParent {
    is_wanted: false,
    is_by_hub: false,
    newest: None,
});

/// Says whether the parent asks for the chunks.
pub(super) fn want_chunk_reports(is_wanted: bool) {
    FOR_PARENT.get_mut(&mut PsLock::acquire()).is_wanted = is_wanted;
}

/// Leaves the hub's report for the parent; `None` lets this process report its own chunks alone. It
/// replaces an older report, because it says everything.
fn leave_report(report: Option<ChunkReport>) {
    let _older = {
        let mut lock = PsLock::acquire();
        let for_parent = FOR_PARENT.get_mut(&mut lock);
        for_parent.is_by_hub = report.is_some();
        std::mem::replace(&mut for_parent.newest, report)
    };
}

/// Returns what the parent is to be told, if anything has changed: the chunks of this process and
/// its descendants, or those of this process alone, which this update is about.
pub(super) fn take_chunk_report(update: Update) -> Option<ChunkReport> {
    let has_changed = !matches!(update, Update::None | Update::Final);
    let own = has_changed.then(|| ChunkReport::of(update));
    let mut lock = PsLock::acquire();
    let for_parent = FOR_PARENT.get_mut(&mut lock);
    match for_parent.is_by_hub {
        true => for_parent.newest.take(),
        false => own,
    }
}

/// Forgets the parent's report in the child of a fork.
pub(super) fn forget_folded_chunks_in_child(lock: &mut PsLock) {
    std::mem::forget(std::mem::take(FOR_PARENT.get_mut(lock)));
}

/// This process in the ledger. No connection has the number 0.
const OWN: u64 = 0;

/// The chunks of all processes. A process is a connection's number, or [`OWN`].
#[derive(Debug, Default)]
struct MemoryLedger {
    /// The unreleased bytes of each process.
    unreleased: BTreeMap<u64, u64>,
    /// The released chunks by the time at which they were done, with their sizes in bytes.
    released: BTreeMap<(TimeStamp, u64), u64>,
    /// The sum of these sizes.
    released_bytes: u64,
}

impl MemoryLedger {
    /// Notes a report of a process. Its chunks that are older than the oldest one are gone.
    fn note(&mut self, process: u64, report: &ChunkReport) {
        match report.oldest_done {
            Some(oldest) if !report.is_whole => {
                self.remove_chunks(..(oldest, 0), |of| of == process);
            }
            _ => self.remove_chunks(.., |of| of == process),
        }
        self.unreleased.insert(process, report.unreleased_bytes);
        for &(done_at, bytes) in &report.newly_released {
            let sum = self.released.entry((done_at, process)).or_default();
            // Several chunks may have been done at the same time.
            *sum = sum.saturating_add(bytes);
            self.released_bytes = self.released_bytes.saturating_add(bytes);
        }
    }

    /// Forgets a process that has ended.
    fn remove(&mut self, process: u64) {
        self.remove_chunks(.., |of| of == process);
        self.unreleased.remove(&process);
    }

    /// Removes the released chunks in a range of times, of some processes.
    fn remove_chunks(
        &mut self,
        times: impl RangeBounds<(TimeStamp, u64)>,
        is_of: impl Fn(u64) -> bool,
    ) {
        let chunks = self.released.range(times).map(|(key, _)| *key);
        let gone: Vec<_> = chunks.filter(|(_, process)| is_of(*process)).collect();
        gone.into_iter().for_each(|key| self.remove_chunk(key));
    }

    fn remove_chunk(&mut self, key: (TimeStamp, u64)) {
        let bytes = self.released.remove(&key).unwrap_or(0);
        self.released_bytes = self.released_bytes.saturating_sub(bytes);
    }

    /// Returns what the processes hold together, as if they were one.
    fn whole(&self) -> ChunkReport {
        let released = self.released.iter();
        ChunkReport {
            is_whole: true,
            unreleased_bytes: self
                .unreleased
                .values()
                .copied()
                .fold(0, u64::saturating_add),
            oldest_done: self.released.keys().next().map(|(done_at, _)| *done_at),
            newly_released: released
                .map(|((done_at, _), bytes)| (*done_at, *bytes))
                .collect(),
        }
    }

    /// Removes the released chunks of all processes that were done at this time or before.
    fn destroy(&mut self, until: TimeStamp) {
        self.remove_chunks(..=(until, u64::MAX), |_| true);
    }

    /// Returns the size of all chunks, in bytes.
    fn bytes(&self) -> u64 {
        let unreleased = self.unreleased.values().copied();
        unreleased.fold(self.released_bytes, u64::saturating_add)
    }

    /// Removes the oldest released chunks while the sum of all chunks exceeds the limit. Returns
    /// for each process the time up to which it must destroy its own chunks.
    fn take_excess(&mut self, max_bytes: u64) -> Vec<(u64, TimeStamp)> {
        let mut excess: BTreeMap<u64, TimeStamp> = BTreeMap::new();
        let mut bytes = self.bytes();
        while bytes > max_bytes
            && let Some((&key, &oldest_bytes)) = self.released.first_key_value()
        {
            self.remove_chunk(key);
            bytes -= oldest_bytes;
            let (done_at, process) = key;
            excess.insert(process, done_at);
        }
        excess.into_iter().collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn report(unreleased_bytes: u64, oldest: Option<u64>, newly: &[(u64, u64)]) -> ChunkReport {
        let newly = newly.iter().map(|&(done, bytes)| (TimeStamp(done), bytes));
        ChunkReport {
            is_whole: false,
            unreleased_bytes,
            oldest_done: oldest.map(TimeStamp),
            newly_released: newly.collect(),
        }
    }

    #[test]
    fn oldest_chunks_of_any_process_go_first() {
        let mut ledger = MemoryLedger::default();
        ledger.note(OWN, &report(10, Some(5), &[(5, 20), (9, 20)]));
        ledger.note(1, &report(10, Some(3), &[(3, 20), (6, 20), (7, 20)]));
        ledger.note(2, &report(10, None, &[]));
        assert_eq!(ledger.bytes(), 130);
        assert_eq!(ledger.take_excess(130), []);
        // Removes the chunks of the times 3, 5 and 6.
        assert_eq!(
            ledger.take_excess(75),
            [(OWN, TimeStamp(5)), (1, TimeStamp(6))]
        );
        assert_eq!(ledger.bytes(), 70);
        // Chunks that cannot be destroyed stay.
        assert_eq!(
            ledger.take_excess(0),
            [(OWN, TimeStamp(9)), (1, TimeStamp(7))]
        );
        assert_eq!(ledger.bytes(), 30);
        ledger.remove(2);
        assert_eq!(ledger.bytes(), 20);
    }

    #[test]
    fn processes_together_are_reported_as_one() {
        let mut child = MemoryLedger::default();
        child.note(OWN, &report(10, Some(5), &[(5, 20), (9, 20)]));
        child.note(1, &report(10, Some(5), &[(5, 3), (7, 20)]));
        let mut parent = MemoryLedger::default();
        parent.note(OWN, &report(1, None, &[]));
        let report_all = |child: &MemoryLedger, parent: &mut MemoryLedger| {
            let whole = child.whole();
            whole.split().iter().for_each(|part| parent.note(4, part));
        };
        report_all(&child, &mut parent);
        assert_eq!(parent.bytes(), child.bytes() + 1);
        // A later report replaces all of the earlier one.
        report_all(&child, &mut parent);
        assert_eq!(parent.bytes(), child.bytes() + 1);
        assert_eq!(parent.take_excess(70), [(4, TimeStamp(5))]);
        child.destroy(TimeStamp(5));
        report_all(&child, &mut parent);
        assert_eq!((child.bytes(), parent.bytes()), (60, 61));
        child.destroy(TimeStamp(9));
        report_all(&child, &mut parent);
        assert_eq!((child.bytes(), parent.bytes()), (20, 21));
    }

    #[test]
    fn report_replaces_the_older_one_of_its_process() {
        let mut ledger = MemoryLedger::default();
        ledger.note(1, &report(10, Some(3), &[(3, 20), (4, 20), (4, 1)]));
        ledger.note(2, &report(0, Some(3), &[(3, 5)]));
        assert_eq!(ledger.bytes(), 56);
        // The process has discarded its oldest chunk itself.
        ledger.note(1, &report(5, Some(4), &[(8, 10)]));
        assert_eq!(ledger.bytes(), 41);
        ledger.note(1, &report(7, None, &[]));
        assert_eq!(ledger.bytes(), 12);
    }
}
