//! Script frames: functions of the scripts that an interpreter in the application runs, and the
//! machine code that it generates.

use std::fmt;

use crate::api::backend;
use crate::types::{ProfilingCategoryPair, ScriptDescription, ScriptImplementation};

/// A function of a script, which identifies its frames.
///
/// A copy is a pointer. Two functions with the same name, file, line, column, implementation,
/// category and page are equal.
#[doc(alias = "JSFunction")]
#[doc(alias = "JSScript")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias = "JsFrame")]
pub struct ScriptFunction(&'static backend::ScriptFunction);

/// Registers a function of a script, once, at or before its first call.
///
/// `name` is empty for a file's top level. `file` is a path or URL, as the viewer will show it.
/// `line` and `column` tell where the function begins, counted from 1; 0 means unknown. At most 512
/// bytes each of name and file are copied, cut at a character boundary.
///
/// May be called from any thread, whether or not the profiler is active. Another call with the same
/// name, file, line and column returns the same function, and takes no further memory. A function
/// is kept until the process ends, because samples refer to it by number. After 1,048,576 different
/// functions, after 256 MiB of functions, or without memory for another one, all further functions
/// are recorded as “(too many script functions)”. Therefore take names from code, not from data.
/// For data, use [`auto_profiler_label_dynamic_relevant_for_js!`][data].
///
/// Cost: a lock and a lookup in a hash table, about 0.1 µs; for a new function about 1 µs and 200
/// bytes. An interpreter should store the result with its own function.
///
/// [data]: crate::label::auto_profiler_label_dynamic_relevant_for_js
#[doc(alias = "ProfilingStackFrame")]
pub fn profiler_register_script_function(
    name: &str,
    file: &str,
    line: u32,
    column: u32,
) -> ScriptFunction {
    let description = ScriptDescription::new(name, file, line, column);
    ScriptFunction(backend::register_script_function(description))
}

impl ScriptFunction {
    /// Returns the function as run by this implementation.
    ///
    /// An interpreter that compiles functions obtains one such function for each of its levels of
    /// optimization, stores them, and pushes frames of the one that runs. Cost: as
    /// [`profiler_register_script_function`].
    #[must_use]
    pub fn with_implementation(self, implementation: ScriptImplementation) -> Self {
        Self(backend::register_script_function(ScriptDescription {
            implementation,
            ..self.0.description
        }))
    }

    /// Returns the function with this category for its frames. By default, they have the
    /// subcategory of “JavaScript” that matches the implementation. Cost: as
    /// [`profiler_register_script_function`].
    #[must_use]
    pub fn with_category(self, category: ProfilingCategoryPair) -> Self {
        Self(backend::register_script_function(ScriptDescription {
            category: Some(category.indices()),
            ..self.0.description
        }))
    }

    /// Returns the function as part of a page of
    /// [`profiler_register_page`](crate::process::profiler_register_page); 0, the default, means no
    /// page. Cost: as [`profiler_register_script_function`].
    #[must_use]
    pub fn with_inner_window_id(self, inner_window_id: u64) -> Self {
        Self(backend::register_script_function(ScriptDescription {
            inner_window_id,
            ..self.0.description
        }))
    }

    /// Returns the name, as far as it was copied. In a build without the profiler, it is empty, and
    /// so are all other properties.
    pub fn name(self) -> &'static str {
        self.0.description.name
    }

    /// Returns the file, as far as it was copied.
    pub fn file(self) -> &'static str {
        self.0.description.file
    }

    /// Returns the line at which the function begins, counted from 1, or 0 if it is unknown.
    pub fn line(self) -> u32 {
        self.0.description.line
    }

    /// Returns the column at which the function begins, counted from 1, or 0 if it is unknown.
    pub fn column(self) -> u32 {
        self.0.description.column
    }

    /// Returns the number by which generated code refers to the function.
    pub(crate) fn number(self) -> u32 {
        self.0.number()
    }
}

impl fmt::Debug for ScriptFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ScriptDescription {
            name,
            file,
            line,
            column,
            ..
        } = self.0.description;
        write!(f, "ScriptFunction({name:?} at {file}:{line}:{column})")
    }
}

/// A call of a script function on the calling thread, from construction to drop.
///
/// An interpreter constructs one when it enters a function, and drops it when it leaves. In the
/// profile, the script function is a frame between the interpreter's function that constructed the
/// guard and that function's caller.
///
/// The function that constructs the guard must not be inlined: mark it with `#[inline(never)]`.
/// Otherwise the frame lies outside of the function that it was inlined into, such as the
/// application's function that called the interpreter. Then the application's function seems to be
/// called by the script.
///
/// The viewer shows it as a script frame, with its file and current line, and shows only such
/// frames when its call tree is set to “JavaScript”. The first frame during a session registers a
/// thread that has not registered, as the first label does. On a registered thread, a session that
/// starts later sees the frame too. The guard is bound to its thread. If it is forgotten, or
/// dropped out of order, it can at worst remove labels and script frames that were pushed after it.
/// A session without the feature [`Features::JS`](crate::Features::JS), which is a default feature,
/// records no script frames.
///
/// A sample records the 1,024 oldest labels and script frames of its thread, and “(newer labels
/// left out)” for the rest, which may hide the innermost function. A thread holds at most 1,048,576
/// labels and script frames; further ones are lost.
///
/// Cost: a few stores, about as much as an
/// [`AutoProfilerLabel`](crate::api::labels::AutoProfilerLabel) without a text. Neither the push
/// nor a sample copies a text. Idea: Gecko's JS frames on the `ProfilingStack`. Gecko's interpreter
/// pushes a pointer to the script and the address of its program counter.
///
/// ```
/// use gekkota::script::{
///     AutoProfilerScriptFrame, ScriptFunction, profiler_register_script_function,
/// };
///
/// #[inline(never)]
/// fn interpret(function: ScriptFunction, lines: std::ops::Range<u32>) {
///     let frame = AutoProfilerScriptFrame::new(function);
///     for line in lines {
///         frame.set_line(line);
///         // The interpreter runs the line.
///     }
/// }
///
/// let fib = profiler_register_script_function("fib", "rules/fib.lua", 12, 7);
/// interpret(fib, 13..20);
/// ```
#[doc(alias = "AutoProfilerLabel")]
#[doc(alias = "IS_JS_FRAME")]
#[doc(alias = "initJsFrame")]
#[doc(alias = "js::ProfilingStackFrame")]
#[derive(Debug)]
#[must_use = "the frame is popped when this is dropped"]
pub struct AutoProfilerScriptFrame(backend::LabelToken);

impl AutoProfilerScriptFrame {
    /// Enters a function at the line where it begins.
    #[inline(always)]
    pub fn new(function: ScriptFunction) -> Self {
        Self(push(backend::stack_pointer(), function))
    }

    /// Enters a function at a given place in the stack, for an interpreter that reports calls by
    /// hooks, which return before the function runs.
    ///
    /// `stack_address` is a number from [`profiler_run_interpreter`]. The address of a local
    /// variable of the function that runs the interpreter serves as well, if that function is not
    /// inlined. The profiler never dereferences it. An address outside the native frames moves the
    /// frame to their inner or outer end. Script frames and labels keep their order: a frame that
    /// is placed too far in moves all later ones there too.
    #[doc(alias = "IS_SP_MARKER_FRAME")]
    #[doc(alias = "initSpMarkerFrame")]
    #[inline(always)]
    pub fn with_stack_address(function: ScriptFunction, stack_address: usize) -> Self {
        Self(push(stack_address as u64, function))
    }

    /// Sets the current line, counted from 1, or 0 if it is unknown. The column becomes unknown.
    ///
    /// Cost: one store, and a check that the frame is still there. If a guard that was dropped out
    /// of order has removed this frame, the call may change the line of another script frame.
    #[inline(always)]
    pub fn set_line(&self, line: u32) {
        backend::set_script_frame_position(&self.0, line, 0);
    }

    /// Sets the current line and column, each counted from 1, or 0 if it is unknown.
    #[inline(always)]
    pub fn set_position(&self, line: u32, column: u32) {
        backend::set_script_frame_position(&self.0, line, column);
    }
}

/// Calls `run`, which runs an interpreter, with a stack address for
/// [`AutoProfilerScriptFrame::with_stack_address`].
///
/// In the profile, script frames at this address lie between this function and its caller. So all
/// native frames of the interpreter are called by the script, and the caller calls the script. This
/// function is never inlined. Call it again where a native function that a script has called runs
/// another script.
///
/// ```
/// use gekkota::script::{
///     AutoProfilerScriptFrame, profiler_register_script_function, profiler_run_interpreter,
/// };
///
/// let rule = profiler_register_script_function("rule", "rules/orders.lua", 5, 0);
/// let sum = profiler_run_interpreter(|stack_address| {
///     // What a hook of the interpreter does when a call begins.
///     let _frame = AutoProfilerScriptFrame::with_stack_address(rule, stack_address);
///     // The interpreter runs the function.
///     1 + 2
/// });
/// assert_eq!(sum, 3);
/// ```
#[inline(never)]
pub fn profiler_run_interpreter<T>(run: impl FnOnce(usize) -> T) -> T {
    let local = 0u8;
    let local = std::hint::black_box(&local);
    let result = run((&raw const *local).addr());
    // Otherwise the compiler could end this function's stack frame before the call.
    std::hint::black_box(local);
    result
}

#[inline(always)]
fn push(stack_address: u64, function: ScriptFunction) -> backend::LabelToken {
    backend::push_script_frame(
        stack_address,
        function.0.number(),
        function.line(),
        function.column(),
    )
}

impl Drop for AutoProfilerScriptFrame {
    #[inline(always)]
    fn drop(&mut self) {
        backend::pop_labels(&self.0);
    }
}

/// A registration of generated code, which ends when this guard is dropped. Made by
/// [`profiler_register_code_range`] or
/// [`profiler_register_script_code_range`](crate::script::profiler_register_script_code_range).
#[derive(Debug)]
#[must_use = "the code is unregistered when this is dropped"]
pub struct CodeRange(Option<backend::CodeRangeToken>);

/// Registers `len` bytes of generated machine code at `start`, so that stacks are unwound through
/// the code and its frames are named `name (in [jit])`.
///
/// The code must keep frame pointers: each function begins with `push rbp; mov rbp, rsp` (on
/// aarch64 `stp x29, x30, [sp, #-n]!; mov x29, sp`) and preserves `rbp` (`x29`) until it returns.
/// Otherwise stacks end in the code as `(truncated)`, or lack callers. A range may hold one
/// function, or many under one name.
///
/// May be called from any thread, whether or not the profiler is active. The profiler never reads
/// memory through `start`, and the code need not exist yet. At most 1,024 bytes of the name are
/// copied. An empty or null range is ignored. Where ranges overlap, the newest one names the shared
/// addresses, also in samples that were taken before: register memory again when new code replaces
/// the old. After a range is dropped, its code is no longer unwound. Its name remains in the
/// profiles of the running session until another range covers its addresses, within the session's
/// duration, and while all dropped ranges take less than a sixteenth of the session's capacity.
///
/// Cost: a lock, three allocations and an insertion into a tree, 1 to 3 µs; about 200 bytes per
/// range. The number of ranges hardly matters, because a change never copies the tree. A program
/// that writes `/tmp/perf-PID.map` for `perf` need not call this function: the sampler reads that
/// file, too.
///
/// ```
/// # let code: [u8; 0] = [];
/// let range = gekkota::jit::profiler_register_code_range(code.as_ptr(), code.len(), "regex #3");
/// // The code may run now.
/// drop(range);
/// ```
#[doc(alias = "PerfMap")]
pub fn profiler_register_code_range(start: *const u8, len: usize, name: &str) -> CodeRange {
    CodeRange(backend::register_code_range(
        start as u64,
        len as u64,
        name,
        None,
    ))
}

/// Registers generated machine code that a compiler made from a script function, so that its frames
/// are the function's script frames, at the line and column where the function begins.
///
/// Otherwise like [`profiler_register_code_range`](crate::jit::profiler_register_code_range). In a
/// session without the feature [`Features::JS`](crate::Features::JS), the frames are native frames
/// with the function's name.
///
/// ```
/// # let code: [u8; 0] = [];
/// use gekkota::script::{
///     ScriptImplementation, profiler_register_script_code_range,
///     profiler_register_script_function,
/// };
///
/// let fib = profiler_register_script_function("fib", "rules/fib.lua", 12, 7)
///     .with_implementation(ScriptImplementation::Optimized);
/// let range = profiler_register_script_code_range(code.as_ptr(), code.len(), fib);
/// // The code may run now.
/// drop(range);
/// ```
#[doc(alias = "JitcodeGlobalTable")]
pub fn profiler_register_script_code_range(
    start: *const u8,
    len: usize,
    function: ScriptFunction,
) -> CodeRange {
    CodeRange(backend::register_code_range(
        start as u64,
        len as u64,
        function.name(),
        Some(function.number()),
    ))
}

impl CodeRange {
    /// Keeps the code registered until the process ends.
    pub fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for CodeRange {
    fn drop(&mut self) {
        if let Some(token) = &self.0 {
            backend::unregister_code_range(token);
        }
    }
}
