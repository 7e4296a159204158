//! Registration of generated machine code.

use crate::api::backend;
use crate::api::script_frames::ScriptFunction;

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
