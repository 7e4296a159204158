//! Writes where async tasks have waited. The threads that poll them have added the rows.

use std::sync::Arc;

use crate::sampler::tick::TickContext;
use crate::state::SessionCounts;
use crate::waiting_tasks::{TaskName, WaitRow, stack_names, swap_wait_rows};

/// Memory that is reused from call to call.
#[derive(Debug, Default)]
pub(super) struct WaitScratch {
    rows: Vec<WaitRow>,
    names: Vec<TaskName<Arc<str>>>,
}

/// Writes the rows that have been added since the last call.
pub(super) fn write_waits(context: &mut TickContext<'_>, scratch: &mut WaitScratch) {
    let WaitScratch { rows, names } = scratch;
    swap_wait_rows(rows);
    let modules = context.unwinder.modules().number();
    for row in rows.drain(..) {
        stack_names(row.stack, names);
        let (mut labels, mut text_bytes) = (0, 0);
        for name in &*names {
            labels += 1;
            text_bytes += name.label.len() + name.dynamic.len();
        }
        let stack = &mut context.scratch.stack;
        let has_memory = stack.try_reserve(labels + 1, labels + 1, text_bytes);
        if has_memory {
            stack.set_task_names(names, row.context);
        }
        if !has_memory || !context.writer.write_wait(&row, modules, stack) {
            SessionCounts::add(&context.session.counts.lost_waits, 1);
        }
    }
}
