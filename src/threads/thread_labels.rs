//! The calling thread's label stack.

use crate::base::{FrameFlags, ProfilingCategoryPair};
use crate::threads::profiling_stack::{LabelToken, ProfilingStack};
use crate::threads::profiling_stack_frame::ScriptPlace;

thread_local! {
    // Without a destructor and made at compile time, so that it is one addition away and never gone.
    static PROFILING_STACK: ProfilingStack = const { ProfilingStack::new() };
}

/// Pushes a label on the calling thread's stack; nothing where the thread is not registered.
#[inline]
pub(crate) fn push_label(
    stack_address: u64,
    label: &'static str,
    category: ProfilingCategoryPair,
    flags: FrameFlags,
) -> LabelToken {
    PROFILING_STACK.with(|stack| stack.push(stack_address, label, category, flags))
}

/// The same with a text that is copied.
#[inline]
pub(crate) fn push_label_with_text(
    stack_address: u64,
    label: &'static str,
    category: ProfilingCategoryPair,
    flags: FrameFlags,
    dynamic: &str,
) -> LabelToken {
    PROFILING_STACK.with(|stack| stack.push_with_text(stack_address, label, category, flags, dynamic))
}

/// Pushes a script frame, by its function's number, where a label would be pushed.
#[inline]
pub(crate) fn push_script_frame(stack_address: u64, function: u32, line: u32, column: u32) -> LabelToken {
    let place = ScriptPlace { position: ScriptPlace::position_of(line, column), function };
    PROFILING_STACK.with(|stack| stack.push_script(stack_address, place))
}

/// Tells where in its function the script frame of this push is now.
#[inline]
pub(crate) fn move_script_frame(token: &LabelToken, line: u32, column: u32) {
    PROFILING_STACK.with(|stack| stack.move_script(token, ScriptPlace::position_of(line, column)));
}

/// Goes back to what was there before the push.
#[inline]
pub(crate) fn pop_labels(token: &LabelToken) {
    PROFILING_STACK.with(|stack| stack.pop_to(token));
}

/// Gives the calling thread's stack its memory, and its address for the handler's use.
pub(super) fn open_profiling_stack() -> *const ProfilingStack {
    PROFILING_STACK.with(ProfilingStack::open);
    own_profiling_stack()
}

/// The calling thread's stack, whether it is open or not.
pub(super) fn own_profiling_stack() -> *const ProfilingStack {
    PROFILING_STACK.with(|stack| stack as *const ProfilingStack)
}

/// Takes the memory back. Guards that are still alive do nothing from then on.
pub(super) fn close_profiling_stack() {
    PROFILING_STACK.with(ProfilingStack::close);
}
