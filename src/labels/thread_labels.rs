//! The calling thread's label stack.
//!
//! A push and a pop are a few inlined instructions in the application's code: the compiler knows
//! where the stack is, and a call would cost as much as the rest.
//!
//! **Contract** (cited below):
//! - *never gone*: the thread-locals have no destructor and are initialized at compile time, so they
//!   exist as long as their thread.

use crate::labels::profiling_stack::{LabelToken, ProfilingStack};
use crate::labels::profiling_stack_frame::ScriptLocation;
use crate::labels::thread_context::ContextWords;
use crate::types::{FrameFlags, ProfilingCategoryPair};

thread_local! {
    // At a constant offset from the thread pointer: see *never gone*.
    static PROFILING_STACK: ProfilingStack = const { ProfilingStack::new() };
}

/// Returns the calling thread's stack, for use within one function of this file. The closure of
/// `with` would be too large to be inlined with everything that it calls.
#[inline(always)]
fn own<'a>() -> &'a ProfilingStack {
    // SAFETY: *never gone*; neither the type nor the reference can leave its thread.
    unsafe { &*own_profiling_stack() }
}

/// Pushes a label on the calling thread's stack. This push and those below call the hook of closed
/// stacks on a thread that is not registered, and do nothing if that does not register the thread.
#[inline(always)]
pub(crate) fn push_label(
    stack_address: u64,
    label: &'static str,
    category: ProfilingCategoryPair,
    flags: FrameFlags,
) -> LabelToken {
    own().push(stack_address, label, category, flags)
}

/// Pushes a label with a dynamic text, which is copied.
#[inline(always)]
pub(crate) fn push_label_with_text(
    stack_address: u64,
    label: &'static str,
    category: ProfilingCategoryPair,
    flags: FrameFlags,
    dynamic: &str,
) -> LabelToken {
    own().push_with_text(stack_address, label, category, flags, dynamic)
}

/// Pushes a script frame of the function with this number.
#[inline(always)]
pub(crate) fn push_script_frame(
    stack_address: u64,
    function: u32,
    line: u32,
    column: u32,
) -> LabelToken {
    let place = ScriptLocation {
        position: ScriptLocation::position_of(line, column),
        function,
    };
    own().push_script(stack_address, place)
}

/// Sets the position, in its function, of the script frame that the push of `token` created.
#[inline(always)]
pub(crate) fn set_script_frame_position(token: &LabelToken, line: u32, column: u32) {
    own().set_script_position(token, ScriptLocation::position_of(line, column));
}

/// Returns to the state before the push of `token`.
#[inline(always)]
pub(crate) fn pop_labels(token: &LabelToken) {
    own().pop_to(token);
}

/// Returns the context of the calling thread.
pub(crate) fn current_context() -> ContextWords {
    own().context_in_handler()
}

/// Sets the context of the calling thread, and returns the one before. Calls the hook of closed
/// stacks on a thread that is not registered.
#[inline(always)]
pub(crate) fn replace_context(context: ContextWords) -> ContextWords {
    own().replace_context(context)
}

/// Allocates the memory of the calling thread's stack, and returns the stack's address for the
/// handler.
pub(crate) fn open_profiling_stack() -> *const ProfilingStack {
    own().open();
    own_profiling_stack()
}

/// Returns the calling thread's stack, open or closed.
#[inline(always)]
pub(crate) fn own_profiling_stack() -> *const ProfilingStack {
    PROFILING_STACK.with(|stack| stack as *const ProfilingStack)
}

/// Frees the stack's memory. Guards that still exist have no effect from then on.
pub(crate) fn close_profiling_stack() {
    own().close();
}
