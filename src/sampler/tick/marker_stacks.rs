//! Unwinds and writes the stacks of markers, which the threads that added the markers have copied.

use crate::backtrace::{PendingStack, count_lost_stack, refill_words, take_pending_stacks};
use crate::sampler::tick::tick_context::{TickContext, captured_of_backtrace, unwind_counted};
use crate::state::SessionCounts;
use crate::types::{Features, StackFeatures};

/// Collects the pending stacks of this session. Stacks that belong to another session are dropped.
pub(crate) fn write_pending_stacks(context: &mut TickContext<'_>) {
    take_pending_stacks(|pending| {
        if pending.session == context.session.generation && !write_stack(context, &pending) {
            count_lost_stack();
        }
    });
    refill_words();
}

fn write_stack(context: &mut TickContext<'_>, pending: &PendingStack) -> bool {
    let PendingStack {
        number,
        features,
        backtrace,
        ..
    } = pending;
    let captured = captured_of_backtrace(backtrace);
    let walks = context
        .session
        .settings
        .features
        .contains(Features::STACK_WALK);
    context.scratch.native.frames.clear();
    context.scratch.native.truncated = false;
    if features.contains(StackFeatures::NATIVE) && walks {
        unwind_counted(context, |unwinder, native| {
            unwinder.unwind(&captured, native)
        });
    } else if features.contains(StackFeatures::LEAF) {
        context
            .unwinder
            .unwind_innermost(&captured, &mut context.scratch.native);
    }
    let modules = context.unwinder.modules().number();
    let scratch = &mut *context.scratch;
    scratch
        .stack
        .set_backtrace(&scratch.native, backtrace, &mut scratch.merged);
    SessionCounts::add(&context.session.counts.marker_stacks, 1);
    context
        .writer
        .write_backtrace(*number, backtrace.time(), modules, &scratch.stack)
}
