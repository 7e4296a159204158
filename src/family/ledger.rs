//! The memory of this process and its children, for one limit of all of them.
//!
//! Each process discards its own oldest chunks when it reaches the limit alone. While all of them
//! together exceed it, this process destroys the oldest released chunk of all. Idea:
//! Gecko's `ProfileBufferGlobalController`.

use std::collections::BTreeMap;

use crate::family::reports::ChunkReport;
use crate::types::TimeStamp;

/// This process in the ledger. No connection has the number 0.
pub(super) const OWN: u64 = 0;

/// What one process holds.
#[derive(Debug, Default)]
struct Account {
    unreleased_bytes: u64,
    /// Sum of its released chunks in the ledger, in bytes.
    released_bytes: u64,
}

/// The chunks of all processes. A process is a connection's number, or [`OWN`].
#[derive(Debug, Default)]
pub(super) struct MemoryLedger {
    accounts: BTreeMap<u64, Account>,
    /// The released chunks by the time at which they were done, with their sizes in bytes.
    released: BTreeMap<(TimeStamp, u64), u64>,
}

impl MemoryLedger {
    /// Forgets all processes.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Notes a report of a process. Its chunks that are older than the oldest one are gone.
    pub(super) fn note(&mut self, process: u64, report: &ChunkReport) {
        match report.oldest_done {
            Some(oldest) if !report.is_whole => self.remove_older(process, oldest),
            _ => self.remove_released(process),
        }
        let account = self.accounts.entry(process).or_default();
        account.unreleased_bytes = report.unreleased_bytes;
        for &(done_at, bytes) in &report.newly_released {
            let sum = self.released.entry((done_at, process)).or_default();
            // Several chunks may have been done at the same time.
            *sum = sum.saturating_add(bytes);
            account.released_bytes = account.released_bytes.saturating_add(bytes);
        }
    }

    /// Forgets a process that has ended.
    pub(super) fn remove(&mut self, process: u64) {
        self.remove_released(process);
        self.accounts.remove(&process);
    }

    fn remove_released(&mut self, process: u64) {
        self.released.retain(|(_, of), _| *of != process);
        if let Some(account) = self.accounts.get_mut(&process) {
            account.released_bytes = 0;
        }
    }

    /// Removes the chunks of a process that were done before this time.
    fn remove_older(&mut self, process: u64, oldest: TimeStamp) {
        let older = self.released.range(..(oldest, 0));
        let gone: Vec<_> = older
            .filter(|((_, of), _)| *of == process)
            .map(|(key, _)| *key)
            .collect();
        for key in gone {
            self.remove_chunk(key);
        }
    }

    fn remove_chunk(&mut self, key: (TimeStamp, u64)) {
        if let Some(bytes) = self.released.remove(&key)
            && let Some(account) = self.accounts.get_mut(&key.1)
        {
            account.released_bytes = account.released_bytes.saturating_sub(bytes);
        }
    }

    /// Returns what the processes hold together, as if they were one.
    pub(super) fn whole(&self) -> ChunkReport {
        let unreleased = self.accounts.values().map(|one| one.unreleased_bytes);
        let released = self.released.iter();
        ChunkReport {
            is_whole: true,
            unreleased_bytes: unreleased.fold(0, u64::saturating_add),
            oldest_done: self.released.keys().next().map(|(done_at, _)| *done_at),
            newly_released: released
                .map(|((done_at, _), bytes)| (*done_at, *bytes))
                .collect(),
        }
    }

    /// Removes the released chunks of all processes that were done at this time or before.
    pub(super) fn destroy(&mut self, until: TimeStamp) {
        let older = self.released.range(..=(until, u64::MAX));
        let gone: Vec<_> = older.map(|(key, _)| *key).collect();
        gone.into_iter().for_each(|key| self.remove_chunk(key));
    }

    /// Returns the number of times at which released chunks were done.
    pub(super) fn chunks(&self) -> usize {
        self.released.len()
    }

    /// Returns the size of all chunks, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let sums = self.accounts.values();
        let sums = sums.map(|account| {
            account
                .unreleased_bytes
                .saturating_add(account.released_bytes)
        });
        sums.fold(0, u64::saturating_add)
    }

    /// Removes the oldest released chunks while the sum of all chunks exceeds the limit. Returns
    /// for each process the time up to which it must destroy its own chunks.
    pub(super) fn take_excess(&mut self, max_bytes: u64) -> Vec<(u64, TimeStamp)> {
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
        ledger.clear();
        assert_eq!(ledger.bytes(), 0);
    }
}
