//! The frames of a stack that formats of single frames show.

use crate::export::options::ExportOptions;
use crate::export::run_loops::folded_runtime;
use crate::model::{FrameId, ProfileModel, StackId};

/// Returns the frames of a stack, the innermost one first, each with the stack that ends in it. The
/// root frame, which is not code, is left out. If the options fold the runtime, so are the frames
/// that end in its run loop, unless the stack has no others.
pub(crate) fn visible_frames<'a>(
    profile: &'a ProfileModel,
    options: &ExportOptions,
    stack: Option<StackId>,
) -> impl Iterator<Item = (StackId, FrameId)> + 'a {
    let runtime = folded_runtime(profile, options.folds_runtime, stack);
    frames_inside(profile, stack, runtime)
}

/// Returns the frames of a stack as [`visible_frames`] does. `runtime` is the part of the stack, or of
/// one that begins with it, that is left out.
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
    use crate::model::{Frame, Function, FunctionKind};

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
            let options = ExportOptions {
                folds_runtime,
                ..ExportOptions::default()
            };
            let frames = visible_frames(&profile, &options, stack);
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
