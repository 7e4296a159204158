//! The frames of a thread's runtime, which are the same in all its samples.

use crate::model::{FrameId, FunctionId, FunctionKind, ProfileModel, StackId};

/// Functions that run a thread's own code. All frames outside of them are the same for each sample.
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

/// Returns the innermost frame of a stack that belongs to the runtime, with the stack that ends in
/// it. The frames up to it are the same in all samples of a thread, and say nothing of its work.
/// `None` if the stack has no such frame.
pub(crate) fn runtime_frames_end(
    profile: &ProfileModel,
    stack: StackId,
) -> Option<(StackId, FrameId)> {
    let mut next = Some(stack);
    while let Some(stack) = next {
        let (prefix, frame) = profile.stack(stack);
        if is_run_loop(profile, profile.frame(frame).function) {
            return Some((stack, frame));
        }
        next = prefix;
    }
    None
}
