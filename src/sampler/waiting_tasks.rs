//! Writes where async tasks have waited. The threads that poll them have added the rows.

use crate::sampler::tick::TickContext;
use crate::state::SessionCounts;
use crate::waiting_tasks::{StackNames, WaitLosses, WaitRow, swap_wait_rows, wait_losses};

/// Maximum number of passes through the rows for one profile, far above what is needed: threads add
/// rows between two passes.
pub(super) const MAX_PASSES: u32 = 64;

/// What the writer of waits keeps from call to call.
#[derive(Debug, Default)]
pub(super) struct WaitScratch {
    rows: Vec<WaitRow>,
    names: StackNames,
    /// The losses that are counted.
    seen: WaitLosses,
}

impl WaitScratch {
    /// Adds new losses to the session's counts.
    pub(super) fn count_losses(&mut self, counts: &SessionCounts) {
        let now = wait_losses();
        let add = |count, now: u64, seen: &mut u64| {
            SessionCounts::add(count, now.saturating_sub(*seen));
            *seen = now.max(*seen);
        };
        add(&counts.lost_waits, now.waits, &mut self.seen.waits);
        let intervals = &mut self.seen.intervals;
        add(&counts.left_out_wait_intervals, now.intervals, intervals);
    }
}

/// Writes the rows that have been added since the last call.
pub(super) fn write_waits(context: &mut TickContext<'_>, scratch: &mut WaitScratch) {
    let WaitScratch { rows, names, .. } = scratch;
    swap_wait_rows(rows);
    let modules = context.unwinder.modules().number();
    for row in rows.drain(..) {
        let stack = &mut context.scratch.stack;
        let has_memory = names.read(row.stack)
            && stack.try_reserve(names.len() + 1, names.len() + 1, names.text_bytes());
        if has_memory {
            stack.set_task_names(names, row.context);
        }
        if !has_memory || !context.writer.write_wait(&row, modules, stack) {
            SessionCounts::add(&context.session.counts.lost_waits, 1);
        }
    }
}
