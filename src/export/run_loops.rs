//! The frames of a thread's runtime, which all samples of the thread share.

use crate::model::{FunctionId, FunctionKind, ProfileModel, StackId};

/// Functions that run a thread's own code. All samples of a thread share the frames outside.
const RUN_LOOPS: &[&str] = &[
    "std::sys::backtrace::__rust_begin_short_backtrace",
    "tokio::runtime::scheduler::multi_thread::worker::Context::run_task",
    "tokio::runtime::blocking::pool::Inner::run",
    "rayon_core::registry::WorkerThread::wait_until_cold",
];

/// Returns whether a function runs a thread's own code, and so belongs to the runtime.
pub(crate) fn is_run_loop(profile: &ProfileModel, function: FunctionId) -> bool {
    let function = profile.function(function);
    let name = profile.text(function.name);
    let is_named = |run_loop: &&str| {
        let rest = name.strip_prefix(*run_loop);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::<"))
    };
    function.kind == FunctionKind::Native && RUN_LOOPS.iter().any(is_named)
}

/// Returns the part of a stack that is left out if the runtime is folded: the stack that ends in the
/// innermost frame of the runtime. All samples of a thread share the frames up to that frame, which
/// say nothing about the thread's work.
pub(crate) fn folded_runtime(
    profile: &ProfileModel,
    folds_runtime: bool,
    stack: Option<StackId>,
) -> Option<StackId> {
    let stack = stack.filter(|_| folds_runtime);
    let mut stacks = std::iter::successors(stack, |stack| profile.stack(*stack).0);
    let ends_in_run_loop = |stack: &StackId| {
        let (_, frame) = profile.stack(*stack);
        is_run_loop(profile, profile.frame(frame).function)
    };
    stacks.find(ends_in_run_loop)
}
