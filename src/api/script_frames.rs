//! Script frames: functions of the scripts that an interpreter in the program runs.

use std::fmt;

use crate::api::engine;
use crate::base::ScriptDescription;

/// A function of a script, by which its frames are known.
///
/// A copy is a pointer. Two of the same name, file, line and column are equal.
#[doc(alias = "JSFunction")]
#[doc(alias = "JSScript")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ScriptFunction(&'static engine::ScriptFunction);

/// Names a function of a script for the profiler, once, before the function's first call or at it.
///
/// `name` is empty for what stands in no function, a file's top level. `file` is a path or URL as the viewer is to show it.
/// `line` and `column` are where the function begins, counted from 1; 0 when that is not known. Name and file are copied,
/// 512 bytes of each at most, cut at a character.
///
/// May be called from any thread, whether the profiler is active or not. The same name, file, line and column give the
/// same function, and no memory is taken then. A function is kept until the process ends, since samples hold its number
/// alone; beyond 1,048,576 different ones all are one, “(too many script functions)”. So make names from code, not from data;
/// for data there is [`auto_profiler_label_dynamic_relevant_for_js!`](crate::label::auto_profiler_label_dynamic_relevant_for_js).
///
/// Cost: a lock and a look into a hash table, about 0.1 µs; a new function about 1 µs and 200 bytes. An interpreter keeps
/// the answer beside its own function.
#[doc(alias = "ProfilingStackFrame")]
pub fn profiler_register_script_function(
    name: &str,
    file: &str,
    line: u32,
    column: u32,
) -> ScriptFunction {
    ScriptFunction(engine::register_script_function(ScriptDescription {
        name,
        file,
        line,
        column,
    }))
}

impl ScriptFunction {
    /// Its name, as far as it was copied; empty where there is no profiler, as all the others here are.
    pub fn name(self) -> &'static str {
        self.0.description.name
    }

    /// Its file.
    pub fn file(self) -> &'static str {
        self.0.description.file
    }

    /// The line that it begins at, counted from 1; 0 when it is not known.
    pub fn line(self) -> u32 {
        self.0.description.line
    }

    /// The column that it begins at, counted from 1; 0 when it is not known.
    pub fn column(self) -> u32 {
        self.0.description.column
    }
}

impl fmt::Debug for ScriptFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ScriptDescription {
            name,
            file,
            line,
            column,
        } = self.0.description;
        write!(f, "ScriptFunction({name:?} at {file}:{line}:{column})")
    }
}

/// A function of a script that the calling thread runs, from the making of this until its drop.
///
/// An interpreter makes one when it enters a function, and drops it when it leaves it. In the profile the function stands as
/// a frame just above the interpreter's own function that made this, so above all of the interpreter that runs it; the
/// viewer shows it as a script's, with its file and the line that ran, and alone with others when it is asked for
/// “JavaScript”. Frames that a thread makes while it is not registered are lost. It is there also for samples of a session
/// that began after it. It is bound to its thread; one that is forgotten, or dropped out of order, can at worst remove
/// labels and script frames that were pushed after it.
///
/// A sample holds the 1,024 oldest labels and script frames of its thread; “(newer labels left out)” stands for the others,
/// and nobody knows then which function was the innermost. A thread has 1,048,576 of them at most; what is pushed beyond is
/// lost.
///
/// Cost: about as much as an [`AutoProfilerLabel`](crate::AutoProfilerLabel) without a dynamic text: a few stores; no text is
/// copied, neither here nor for a sample. Idea: Gecko's JS frames on the `ProfilingStack`, whose interpreter pushes a
/// pointer to the script and the address of its program counter.
///
/// ```
/// use gekkota::script::{AutoProfilerScriptFrame, profiler_register_script_function};
///
/// let fib = profiler_register_script_function("fib", "rules/fib.lua", 12, 7);
/// {
///     let frame = AutoProfilerScriptFrame::new(fib);
///     for line in 13..20 {
///         frame.set_line(line);
///         // The interpreter runs the line.
///     }
/// }
/// ```
#[doc(alias = "AutoProfilerLabel")]
#[doc(alias = "IS_JS_FRAME")]
#[doc(alias = "initJsFrame")]
#[doc(alias = "js::ProfilingStackFrame")]
#[derive(Debug)]
#[must_use = "the frame is popped when this is dropped"]
pub struct AutoProfilerScriptFrame(engine::LabelToken);

impl AutoProfilerScriptFrame {
    /// Enters a function: its first line is where it begins.
    #[inline(always)]
    pub fn new(function: ScriptFunction) -> Self {
        Self(push(engine::stack_pointer(), function))
    }

    /// The same for an interpreter that tells of its calls by hooks, which have returned before the function runs: the frame
    /// stands where `stack_address` says. That is the address of a local variable of the function that runs the
    /// interpreter, as a number; nothing is read from there.
    ///
    /// An address that lies elsewhere moves the frame to the inner or outer end of the native ones. Script frames and labels
    /// keep their order, so one that stands further in than it should moves all that is pushed after it along, to there.
    #[doc(alias = "IS_SP_MARKER_FRAME")]
    #[doc(alias = "initSpMarkerFrame")]
    #[inline(always)]
    pub fn with_stack_address(function: ScriptFunction, stack_address: usize) -> Self {
        Self(push(stack_address as u64, function))
    }

    /// Tells the line that runs now, counted from 1; 0 when it is not known. Its column is not known then.
    ///
    /// Cost: one store, and the look whether this frame is still there. On a thread other than the frame's it cannot be
    /// called. A frame that was removed, by a guard that was dropped out of order, may change another script frame's line.
    #[inline(always)]
    pub fn set_line(&self, line: u32) {
        engine::move_script_frame(&self.0, line, 0);
    }

    /// The same with a column, counted from 1; 0 when it is not known.
    #[inline(always)]
    pub fn set_position(&self, line: u32, column: u32) {
        engine::move_script_frame(&self.0, line, column);
    }
}

#[inline(always)]
fn push(stack_address: u64, function: ScriptFunction) -> engine::LabelToken {
    engine::push_script_frame(
        stack_address,
        function.0.number(),
        function.line(),
        function.column(),
    )
}

impl Drop for AutoProfilerScriptFrame {
    #[inline(always)]
    fn drop(&mut self) {
        engine::pop_labels(&self.0);
    }
}
