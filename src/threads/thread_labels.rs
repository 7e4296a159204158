//! The calling thread's label stack.
//!
//! A push and a pop are a few instructions in the host's own code: where the stack is, the compiler knows, and all of it
//! is inlined, since a call would cost as much as the rest.
//!
//! **Contract** (cited below):
//! - *never gone*: the thread-local has no destructor and is made at compile time, so it is there as long as its thread.

use crate::base::{FrameFlags, ProfilingCategoryPair};
use crate::threads::profiling_stack::{LabelToken, ProfilingStack};
use crate::threads::profiling_stack_frame::ScriptPlace;

thread_local! {
    // One addition away: see *never gone*.
    static PROFILING_STACK: ProfilingStack = const { ProfilingStack::new() };
}

/// For use within a function of this file. The closure of `with` would be too large to be inlined with all that is called.
#[inline(always)]
fn own<'a>() -> &'a ProfilingStack {
    // SAFETY: *never gone*; the type stays on its thread, and so does the reference.
    unsafe { &*own_profiling_stack() }
}

/// Pushes a label on the calling thread's stack; nothing where the thread is not registered.
#[inline(always)]
pub(crate) fn push_label(
    stack_address: u64,
    label: &'static str,
    category: ProfilingCategoryPair,
    flags: FrameFlags,
) -> LabelToken {
    own().push(stack_address, label, category, flags)
}

/// The same with a text that is copied.
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

/// Pushes a script frame, by its function's number, where a label would be pushed.
#[inline(always)]
pub(crate) fn push_script_frame(
    stack_address: u64,
    function: u32,
    line: u32,
    column: u32,
) -> LabelToken {
    let place = ScriptPlace {
        position: ScriptPlace::position_of(line, column),
        function,
    };
    own().push_script(stack_address, place)
}

/// Tells where in its function the script frame of this push is now.
#[inline(always)]
pub(crate) fn move_script_frame(token: &LabelToken, line: u32, column: u32) {
    own().move_script(token, ScriptPlace::position_of(line, column));
}

/// Goes back to what was there before the push.
#[inline(always)]
pub(crate) fn pop_labels(token: &LabelToken) {
    own().pop_to(token);
}

/// Gives the calling thread's stack its memory, and its address for the handler's use.
pub(super) fn open_profiling_stack() -> *const ProfilingStack {
    own().open();
    own_profiling_stack()
}

/// The calling thread's stack, whether it is open or not.
#[inline(always)]
pub(super) fn own_profiling_stack() -> *const ProfilingStack {
    PROFILING_STACK.with(|stack| stack as *const ProfilingStack)
}

/// Takes the memory back. Guards that are still alive do nothing from then on.
pub(super) fn close_profiling_stack() {
    own().close();
}
