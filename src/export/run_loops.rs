//! The frames of a thread's runtime, which all samples of the thread share, and the frames that are
//! shown without them.

use crate::model::{FrameId, FunctionId, FunctionKind, ProfileModel, StackId};

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

/// Returns the frames of a stack, the innermost one first, each with the stack that ends in it. The
/// root frame, which is not code, is left out. So are the frames of `runtime`, which is the part of
/// the stack, or of one that begins with it, that is folded; unless the stack has no others.
pub(crate) fn frames_inside(
    profile: &ProfileModel,
    stack: Option<StackId>,
    runtime: Option<StackId>,
) -> impl Iterator<Item = (StackId, FrameId)> + '_ {
    let mut next = stack;
    std::iter::from_fn(move || {
        let current = next?;
        let (prefix, frame) = profile.stack(current);
        next = prefix.filter(|prefix| Some(*prefix) != runtime && Some(current) != runtime);
        Some((current, frame))
    })
    .filter(|(_, frame)| !profile.is_root(profile.frame(*frame).function))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Frame, Function};

    #[test]
    fn root_and_folded_runtime_are_left_out() {
        let mut profile = ProfileModel::default();
        let mut stack = None;
        for (name, kind) in [
            ("(root)", FunctionKind::Structure),
            ("main", FunctionKind::Native),
            (
                "std::sys::backtrace::__rust_begin_short_backtrace",
                FunctionKind::Native,
            ),
            ("work", FunctionKind::Native),
        ] {
            let name = profile.intern(name);
            let function = profile.intern_function(Function::new(name, kind));
            let frame = profile.intern_frame(&Frame::new(function));
            stack = Some(profile.append_frame(stack, frame));
        }
        let names = |folds_runtime, stack| {
            let runtime = folded_runtime(&profile, folds_runtime, stack);
            let frames = frames_inside(&profile, stack, runtime);
            let names =
                frames.map(|(_, frame)| profile.function_name(profile.frame(frame).function));
            names.collect::<Vec<_>>()
        };
        let runtime = "std::sys::backtrace::__rust_begin_short_backtrace";
        assert_eq!(names(false, stack), ["work", runtime, "main"]);
        assert_eq!(names(true, stack), ["work"]);
        let in_runtime = profile.stack(stack.expect("a stack")).0;
        assert_eq!(names(true, in_runtime), [runtime]);
        assert!(names(true, None).is_empty());
    }
}
