//! Unwinds and writes the stacks of markers. The thread that added a marker has copied its stack.

use std::sync::atomic::Ordering;

use crate::backtrace::{PendingStack, count_lost_stack, refill_words, take_pending_stacks};
use crate::sampler::allocation_stacks::keep_stack;
use crate::sampler::tick::tick_context::{TickContext, captured_of_backtrace, unwind_counted};
use crate::state::SessionCounts;
use crate::types::{CodeAddress, Features, StackAddress, StackFeatures};
use crate::unwind::{NativeFrame, NativeStack};

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
        is_kept,
        backtrace,
        ..
    } = pending;
    let walks = context
        .session
        .settings
        .features
        .contains(Features::STACK_WALK);
    if !context.scratch.try_reserve_for_backtrace(backtrace) {
        return false;
    }
    context.scratch.native.truncated = false;
    if let Some(addresses) = backtrace.return_addresses() {
        let max_frames = if walks { addresses.len() } else { 1 };
        set_frames(
            &addresses[..max_frames.min(addresses.len())],
            &mut context.scratch.native,
        );
    } else if features.contains(StackFeatures::NATIVE) && walks {
        let captured = captured_of_backtrace(backtrace);
        unwind_counted(context, |unwinder, native| {
            unwinder.unwind(&captured, native)
        });
    } else if features.contains(StackFeatures::LEAF) {
        let captured = captured_of_backtrace(backtrace);
        context
            .unwinder
            .unwind_innermost(&captured, &mut context.scratch.native);
    }
    let modules = context.unwinder.modules().number();
    let scratch = &mut *context.scratch;
    scratch.stack.set_backtrace(
        &scratch.native,
        backtrace,
        context.session.records_scripts(),
        &mut scratch.merged,
    );
    SessionCounts::add(&context.session.counts.marker_stacks, 1);
    if *is_kept && !keep_stack(*number, backtrace.time(), modules, &scratch.stack) {
        let count = &context.session.counts.unkept_allocation_stacks;
        if count.fetch_add(1, Ordering::Relaxed) == 0 {
            context
                .session
                .log
                .add("no space for the stacks of more allocations");
        }
    }
    context
        .writer
        .write_backtrace(*number, backtrace.time(), modules, &scratch.stack)
}

/// Converts return addresses to frames, innermost first. In a stack, the address of the innermost
/// frame is an instruction. So 1 is subtracted from the first return address, which moves it into
/// the call instruction.
fn set_frames(return_addresses: &[u64], native: &mut NativeStack) {
    let frame = |(index, address): (usize, &u64)| NativeFrame {
        address: CodeAddress::new(if index == 0 { address - 1 } else { *address }),
        stack_address: StackAddress(0),
    };
    native
        .frames
        .extend(return_addresses.iter().enumerate().map(frame));
}
