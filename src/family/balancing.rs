//! One limit for the memory of this process and its children.

use std::time::{Duration, Instant};

use crate::buffer::{Update, UpdateReader};
use crate::family::folded_chunks::{are_folded_chunks_wanted, leave_folded_chunks};
use crate::family::hub_state::{HubState, States};
use crate::family::ledger::OWN;
use crate::family::member::next_id;
use crate::family::orders::Order;
use crate::family::reports::ChunkReport;
use crate::state::core_buffer;
use crate::types::TimeStamp;

/// Time between two comparisons of the memory of all processes with the limit, and while it is far
/// below the limit.
const BALANCE: Duration = Duration::from_millis(50);
const CALM_BALANCE: Duration = Duration::from_millis(500);

impl HubState {
    /// If it is time, compares the memory of all processes with the limit. Returns the orders by
    /// which children are to destroy chunks, and destroys those of this process.
    pub(super) fn balance(&mut self, now: Instant) -> Vec<(u64, u64, Order)> {
        let Some(session) = &self.session else {
            return Vec::new();
        };
        if self.balances_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        let max_bytes = session.settings.capacity_bytes;
        let (update, kept_bytes) = core_buffer().read_update(UpdateReader::Family);
        match update {
            Update::None => {}
            Update::Final => self.ledger.remove(OWN),
            update => {
                self.has_changed_chunks = true;
                let mut report = ChunkReport::of(update);
                report.unreleased_bytes += kept_bytes;
                self.ledger.note(OWN, &report);
            }
        }
        let has_changed = std::mem::take(&mut self.has_changed_chunks);
        // Once it does, the parent gets the chunks of all these processes from here.
        let begins = !self.folds_chunks && are_folded_chunks_wanted();
        self.folds_chunks |= begins;
        let reports = begins || self.folds_chunks && has_changed;
        let pause = match self.ledger.bytes() < max_bytes / 2 && !reports {
            true => CALM_BALANCE,
            false => BALANCE,
        };
        self.balances_at = Some(now + pause);
        let mut orders = Vec::new();
        for (process, time) in self.ledger.take_excess(max_bytes) {
            match process {
                OWN => core_buffer().destroy_chunks_at_or_before(time),
                member => orders.push((member, next_id(), Order::DestroyChunks(time))),
            }
        }
        if reports {
            leave_folded_chunks(self.ledger.whole());
        }
        orders
    }

    /// Destroys the chunks of all children that were complete at this time: the parent of this
    /// process needs the memory.
    pub(super) fn destroy_chunks(&mut self, until: TimeStamp, states: States<'_, '_>) {
        self.ledger.destroy(until);
        self.has_changed_chunks = true;
        for state in states.filter(|state| state.takes_part()) {
            state.order(Order::DestroyChunks(until));
        }
    }

    /// Returns whether a child may have chunks of these sizes.
    pub(super) fn is_plausible(&self, chunks: &ChunkReport) -> bool {
        /// Memory that the chunks of a process and of its children may take in addition to the
        /// capacity: each writer reserves two.
        const SPARE_BYTES: u64 = 64 << 30;
        /// Maximum number of released chunks of all processes.
        const MAX_CHUNKS: usize = 1 << 20;
        let Some(session) = &self.session else {
            return true;
        };
        let max_bytes = session.settings.capacity_bytes.saturating_add(SPARE_BYTES);
        let newly = chunks.newly_released.iter().map(|(_, bytes)| *bytes);
        chunks.unreleased_bytes <= max_bytes
            && newly.fold(0, u64::saturating_add) <= max_bytes
            && self.ledger.chunks() + chunks.newly_released.len() <= MAX_CHUNKS
    }
}
